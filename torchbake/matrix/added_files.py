"""The files that a matrix adds to images: checks of the sources, and the paths that an image gets."""

from collections.abc import Iterator
from pathlib import Path

from torchbake.core.suggest import nearest
from torchbake.matrix.added_paths import occupied_by
from torchbake.matrix.additions import places_of
from torchbake.matrix.dockerignore import read_ignore
from torchbake.matrix.model import Matrix
from torchbake.matrix.problems import problems
from torchbake.matrix.spec import Additions
from torchbake.matrix.yaml_source import Document, Location

_BIGGEST = 1 << 20  # bytes of a certificate
_BEGIN = "-----BEGIN CERTIFICATE-----"


def check_files(matrix: Matrix, document: Document) -> None:
    """Check all added files. Raises MatrixError with each problem at the line that names the file."""
    root = document.path.absolute().parent
    matches: list[tuple[Location, str]] = []
    for at, place in places_of(matrix):
        for number, source in enumerate(place.certificates):
            if reason := _missing(root, source) or _no_certificate(root / source):
                matches.append(((*at, "certificates", number), f"{source}: {reason}"))
        for number, file in enumerate(place.files):
            if reason := _missing(root, file.source) or _impossible_content(root, root / file.source, file.target):
                matches.append(((*at, "files", number, "source"), f"{file.source}: {reason}"))
    if matches:
        raise problems(document, matches)


def _impossible_content(root: Path, folder: Path, target: str) -> str:
    """Return why the content of a folder cannot go into an image; empty if it can."""
    for path in held_by(root, folder) if folder.is_dir() else ():
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return f"holds {name}, which is neither a file nor a folder"
        if not name.isprintable():
            return f"holds {name!r}, a name with control characters"
        if reason := occupied_by(f"{target}/{name}"):
            return f"holds {name}, and {reason}"
    return ""


def held_by(root: Path, folder: Path) -> Iterator[Path]:
    """Yield the paths of a folder for images, sorted, without bytecode and without ignored paths."""
    ignore, source = read_ignore(root), folder.relative_to(root).as_posix()
    for path in sorted(folder.rglob("*")):
        bytecode = "__pycache__" in path.relative_to(folder).parts
        if not bytecode and ignore.takes(path.relative_to(root).as_posix(), [source]):
            yield path


def expected_files(root: Path, own: Additions) -> dict[str, tuple[Path, int, int]]:
    """Return each added file by its path in the image: its source, owner and mode."""
    matches: dict[str, tuple[Path, int, int]] = {}
    for file in own.files:
        source, uid = root / file.source, file.uid(own.user)
        below = {f"/{path.relative_to(source).as_posix()}": path for path in held_by(root, source) if path.is_file()}
        for name, path in (below if source.is_dir() else {"": source}).items():
            usual = (0o755 if path.stat().st_mode & 0o111 else 0o644) | (0o020 if uid else 0)
            matches[file.target + name] = (path, uid, int(file.mode, 8) if file.mode else usual)
    return matches


def file_paths(root: Path, own: Additions) -> set[str]:
    """Return the paths of an image whose owner and mode the matrix sets: added files and folders."""
    paths = set(expected_files(root, own))
    for file in own.files:
        source = root / file.source
        if source.is_dir():
            folders = (path.relative_to(source) for path in held_by(root, source) if path.is_dir())
            paths |= {file.target, *(f"{file.target}/{folder.as_posix()}" for folder in folders)}
    return paths - {own.user.home, own.user.workdir}  # which exist before, and do not change


def _missing(root: Path, source: str) -> str:
    """Return why a source does not exist below the root; empty if it does."""
    path = root
    for part in source.rstrip("/").split("/"):
        path /= part
        if path.is_symlink():
            return "is or goes through a symlink, which may lead anywhere; name the file itself"
    if not path.exists():
        near = nearest(path.name, [one.name for one in path.parent.glob("*")], count=1)
        return "no such file beside the matrix" + (f"; did you mean {near[0]!r}?" if near else "")
    if path.is_dir() != source.endswith("/"):
        return (
            "is a folder; write it with a slash at its end" if path.is_dir() else "is not a folder; leave out the slash"
        )
    return "" if path.is_file() or path.is_dir() else "is not a plain file"


def _no_certificate(path: Path) -> str:
    """Return why a file is no certificate of an authority; empty if it is."""
    if path.stat().st_size > _BIGGEST:
        return "is too large for a certificate"
    try:
        text = path.read_bytes().decode("ascii")
    except UnicodeDecodeError:
        return f"is not PEM; make it so: openssl x509 -inform der -in {path.name} -out {path.stem}.pem"
    if "PRIVATE KEY-----" in text:
        return "holds a private key, which everybody who pulls the image could read; leave the certificate alone in it"
    count = text.count(_BEGIN)
    if count != 1:
        return f"holds {count or 'no'} certificates in PEM; the system takes one from each file"
    import ssl  # noqa: PLC0415 - a tenth of a start, and needed for few matrices

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text[text.index(_BEGIN) :])
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return f"is not a certificate that OpenSSL can read ({reason})"
    return "" if context.cert_store_stats()["x509_ca"] else "is not an authority's certificate: CA:TRUE is not in it"
