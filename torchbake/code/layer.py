"""A folder of code as one layer: a tar archive that its files alone decide, byte by byte."""

import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal, TypeAlias

from torchbake.errors import UsageError
from torchbake.oci.gzip_layer import write_gzip_layer
from torchbake.oci.layer_archive import Member, write_layer
from torchbake.oci.layer_order import Layer
from torchbake.oci.tar_member import MemberSizeError

LayerCompression: TypeAlias = Literal["gzip", "zstd"]
_TIME = 315532800  # 1980-01-01, the oldest time that a zip file can have: a job may pack its code
_FOLDER, _FILE, _PROGRAM = 0o755, 0o644, 0o755
# An entry of such a folder would replace the image's: they are links, or have an owner or a mode of their own.
_NOT_OURS = (
    *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "sys"),
    *("tmp", "usr/bin", "usr/lib", "usr/sbin", "var"),
)


@dataclass(frozen=True, kw_only=True)
class CodeLayer:
    """A layer in a file, with the number of its files and the bytes of their content."""

    path: Path
    layer: Layer
    files: int
    size: int


def code_layer(
    folder: Path, names: Sequence[str], *, at: str, work: Path, compression: LayerCompression = "gzip"
) -> CodeLayer:
    """Write these files of a folder as a layer, below the absolute path ``at``, into the folder ``work``.

    The archive depends on names, contents, links and executable bits alone. Raises UsageError for a file that no layer
    can hold, for a file that changes while it is read, and for an impossible ``at``. Raises OSError too.
    """
    place, target = place_of(at), work / "code.tar"
    write = write_gzip_layer if compression == "gzip" else _write_zstd
    try:
        members = list(_members(folder, names, place))
        layer = write(target, members)
    except (FileNotFoundError, MemberSizeError) as error:
        reason = f"{error.filename} is gone" if error.filename else error
        raise UsageError(f"A file changed while it was read: {reason}.", hint="Run again.") from None
    sizes = [info.size for info, _ in members if info.isreg()]
    return CodeLayer(path=target, layer=layer, files=len(names), size=sum(sizes))


def place_of(at: str) -> PurePosixPath:
    """Return the folder of an image, relative to its root. Raises UsageError if code cannot be there."""
    path = PurePosixPath(os.path.normpath(at))
    if not path.is_absolute() or len(path.parts) < 2 or not at.isprintable():
        raise UsageError(f"{at!r} is no place for code.", hint="Name an absolute folder of the image, such as /job.")
    place = PurePosixPath(*path.parts[1:])
    owner = next((each for each in _NOT_OURS if place.is_relative_to(each)), "")
    if owner or str(place) in ("usr", "opt", "srv", "mnt"):
        raise UsageError(
            f"Code at {at} would replace the image's own /{owner or place}.",
            hint="Name a folder such as /job or /opt/code.",
        )
    return place


def _write_zstd(target: Path, members: Sequence[Member]) -> Layer:
    return write_layer(target, members, threads=1)


def _members(folder: Path, names: Sequence[str], place: PurePosixPath) -> Iterator[Member]:
    """Yield the folders, then the files, each in the order of their names, so that a parent comes first."""
    files = {str(place / name): _member(folder, name, names, str(place / name)) for name in sorted(names)}
    parents = {str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."}
    for name in sorted(parents):
        yield _info(name, tarfile.DIRTYPE, _FOLDER), None
    yield from files.values()


def _member(folder: Path, name: str, names: Sequence[str], path: str) -> Member:
    source = folder / name
    status = source.lstat()
    if not name.isprintable():
        raise UsageError(f"{name!r} in {folder} is not UTF-8, or holds control characters.", hint="Rename it.")
    if stat.S_ISLNK(status.st_mode):
        info = _info(path, tarfile.SYMTYPE, 0o777)
        info.linkname = _target(folder, name, names)
        return info, None
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{source} is neither a file nor a link.", hint="Take it out of the folder, or exclude it.")
    info = _info(path, tarfile.REGTYPE, _PROGRAM if status.st_mode & stat.S_IXUSR else _FILE)
    info.size = status.st_size
    return info, _opener(source)


def _opener(source: Path) -> Callable[[], IO[bytes]]:
    return lambda: source.open("rb")


def _target(folder: Path, name: str, names: Sequence[str]) -> str:
    """Return the target of a link. Raises UsageError unless the layer holds the target."""
    text = os.readlink(folder / name)  # noqa: PTH115 - Path would normalize the text
    inside = os.path.normpath(PurePosixPath(name).parent / text)
    if inside != "." and inside not in names and not any(other.startswith(f"{inside}/") for other in names):
        raise UsageError(
            f"{folder / name} is a link to {text}, which is out of the folder, not there, or left out.",
            hint="Copy the file into the folder, name it by a relative path, or exclude the link.",
        )
    return text


def _info(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, mode, _TIME
    return info
