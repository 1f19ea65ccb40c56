"""Compare an image's input files with an earlier commit, for `list --changed-since`.

The committed files are compared: nothing is rendered, resolved or built for the earlier commit.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

from torchbake.build.inputs import toolkit_files
from torchbake.core.git import ask_git, git_failure, run_git
from torchbake.core.paths import TOOLKIT
from torchbake.debian.lockfile import debian_lock_path
from torchbake.errors import MatrixError, UsageError
from torchbake.lock.builder_lock import builder_lock_path
from torchbake.lock.changes import describe_changes
from torchbake.lock.image_lock import lock_path
from torchbake.lock.lockfile import parse_pins
from torchbake.matrix.dockerignore import FILE, read_ignore
from torchbake.matrix.expand import expand
from torchbake.matrix.model import validate_matrix
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.matrix.yaml_source import parse_document
from torchbake.render.dockerfile import dockerfile_path

Files = Mapping[Path, bytes]  # without missing files
_MOST_FILES = 3  # file names in a reason
_FETCH = "Fetch it: git fetch origin main. A checkout of CI may have only the last commit (fetch-depth)."


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A project at an earlier commit. ``specs`` are by ID; ``problem`` is why its matrix cannot be read.

    ``commit`` is the full hash of ``ref``; empty for the time before the first commit.
    """

    ref: str
    commit: str
    files: Files
    specs: Mapping[str, Spec]
    problem: str = ""


def files_of(project: Project) -> dict[str, tuple[Path, ...]]:
    """Return the input files of each image by its ID: Dockerfile, locks, and the toolkit's files."""
    return {spec.id: tuple(_files(project.root, spec)) for spec in project.expansion.specs}


def _files(root: Path, spec: Spec) -> list[Path]:
    locks = [lock_path(root, spec), builder_lock_path(root)] if isinstance(spec, ImageSpec) else []
    locks.append(debian_lock_path(root, spec.base))
    return [dockerfile_path(root, spec), *locks, *(TOOLKIT / name for name in toolkit_files(spec))]


def read_now(paths: Collection[Path]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in paths if path.is_file()}


def why_changed(spec: Spec, paths: Collection[Path], now: Files, then: Earlier) -> str:
    """Return the difference of an image, with the files ``paths``, from an earlier commit; empty if none. Pure."""
    if then.problem:
        return f"the matrix of {then.ref} cannot be read: {then.problem}"
    old = then.specs.get(spec.id)
    if old is None:
        return f"not in the matrix of {then.ref}"
    keys = [key for key in differing(old, spec) if key != "line"]
    if keys:
        return f"its row changed: {', '.join(keys)}"
    changed = [path for path in paths if now.get(path) != then.files.get(path)]
    locks = [path for path in changed if path.suffix == ".lock"]
    packages = "; ".join(filter(None, (_packages(then.files.get(path), now.get(path)) for path in locks)))
    return describe([_label(path) for path in changed]) + (f": {packages}" if packages else "")


def _packages(old: bytes | None, new: bytes | None) -> str:
    """Describe the changed packages of a lock; empty if there are none, or if a text has no pins."""
    before, after = (parse_pins((data or b"").decode("utf-8", "replace")) for data in (old, new))
    return describe_changes(before, {pin.name: pin.version for pin in after}) if before and after else ""


def describe(changed: Sequence[str]) -> str:
    """Return changed files as a reason; empty if there are none."""
    more = f" +{len(changed) - _MOST_FILES}" if len(changed) > _MOST_FILES else ""
    return f"changed: {', '.join(changed[:_MOST_FILES])}{more}" if changed else ""


def differing(one: Spec, other: Spec) -> list[str]:
    """Return the fields in which two images of one ID differ."""
    if type(one) is not type(other):
        return ["kind"]
    return [field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name)]


def _label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}" if path.is_relative_to(TOOLKIT) else path.name


def read_earlier(project: Project, ref: str, paths: Collection[Path]) -> Earlier:
    """Read a project at a commit: its matrix, and the files of ``paths`` in its repository.

    Other files, of an installed toolkit, are read as they are now. For a new branch GitHub gives a hash of zeros, which
    means the time before the first commit. Raises UsageError for an unknown commit.
    """
    if set(ref) == {"0"}:
        return Earlier(ref="no commit", commit="", files={}, specs={})
    top, commit = _repository(project.root), _commit(project.root, ref)
    matrix = project.document.path.absolute()
    inside = {path: _below(path, top) for path in {*paths, matrix}}
    if project.root != TOOLKIT:  # a toolkit in the repository that git does not track is like an installed one
        tracked = set(_names(top, "ls-files"))
        inside |= {path: "" for path, name in inside.items() if path.is_relative_to(TOOLKIT) and name not in tracked}
    matches = _contents(top, commit, {path: name for path, name in inside.items() if name})
    same = read_now([path for path, name in inside.items() if not name])
    specs, problem = _specs(matches.get(matrix), matrix)
    return Earlier(ref=ref, commit=commit, files={**same, **matches}, specs=specs, problem=problem)


def changed_below(project: Project, then: Earlier, sources: Collection[str]) -> list[str]:
    """Return the changed files of the matrix's folder that an image takes by these paths and globs."""
    if not sources or not then.commit:
        return []
    paths = [f":(literal){FILE}", *(each for source in sources for each in _pathspecs(source))]
    commands = ("diff", "--name-only", "--relative", then.commit), ("ls-files", "--others")
    names = {name for words in commands for name in _names(project.root, *words, paths=paths)}
    ignore = read_ignore(project.root)
    return sorted(name for name in names if name == FILE or ignore.takes(name, sources))


def _pathspecs(source: str) -> tuple[str, ...]:
    """Return git's patterns for a source of `own_inputs`: folders with all files in them, except bytecode."""
    glob = any(mark in source for mark in "*?[")
    matches = (f":(glob){source}", f":(glob){source}/**") if glob else (f":(literal){source}",)
    return (*matches, ":(exclude,glob)**/__pycache__/**")


def _names(folder: Path, *words: str, paths: Sequence[str] = ()) -> list[str]:
    """Return the names that a git command prints. Raises UsageError."""
    process = run_git(folder, *words, "-z", "--", *paths)
    if process.returncode:
        raise git_failure(process, folder)
    return [os.fsdecode(name) for name in process.stdout.split(b"\0") if name]


def _specs(data: bytes | None, path: Path) -> tuple[dict[str, Spec], str]:
    """Return the images of a matrix by ID, and the reason if the matrix is not valid today."""
    if data is None:
        return {}, ""
    try:
        document = parse_document(data.decode("utf-8"), path)
        return {spec.id: spec for spec in expand(validate_matrix(document), document).specs}, ""
    except UnicodeDecodeError:
        return {}, "it is not UTF-8"
    except MatrixError as error:
        return {}, error.message.partition("\n")[0]


def _below(path: Path, top: Path) -> str:
    """Return a path relative to the repository; empty for a path outside of it."""
    real = path.parent.resolve() / path.name
    return PurePosixPath(real.relative_to(top)).as_posix() if real.is_relative_to(top) else ""


def _repository(root: Path) -> Path:
    try:
        top = ask_git(root, "rev-parse", "--show-toplevel")
    except FileNotFoundError:
        raise UsageError("--changed-since asks git, which is not installed.", hint="Install git.") from None
    if not top:
        raise UsageError(f"{root} is in no git repository, so nothing can have changed since.", hint="Run: git init")
    return Path(top).resolve()


def _commit(root: Path, ref: str) -> str:
    commit = ask_git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if not commit:
        raise UsageError(f"--changed-since: git knows no commit {ref!r} here.", hint=_FETCH)
    return commit


def _contents(top: Path, commit: str, names: Mapping[Path, str]) -> dict[Path, bytes]:
    """Read files of a commit by one git process. Files that the commit does not have are left out."""
    objects = "".join(f"{commit}:{name}\n" for name in names.values())
    process = run_git(top, "cat-file", "--batch", stdin=objects.encode())
    if process.returncode:
        raise git_failure(process, top)
    data = process.stdout
    matches, place = dict[Path, bytes](), 0
    for path in names:
        end = data.index(b"\n", place)
        head, place = data[place:end].rsplit(b" ", 2), end + 1
        if head[-1] == b"missing":
            continue
        size = int(head[-1])
        if head[-2] == b"blob":
            matches[path] = data[place : place + size]
        place += size + 1
    return matches
