"""What of an image's inputs differs from an earlier commit of the repository: the rule behind `list --changed-since`.

Compared are files as they are committed: nothing is rendered, resolved or built for the earlier commit.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

from torchbake.build.inputs import toolkit_files
from torchbake.core.git import ask_git, git_failure, run_git
from torchbake.core.paths import TOOLKIT
from torchbake.errors import MatrixError, UsageError
from torchbake.lock.builder_lock import builder_lock_path
from torchbake.lock.image_lock import lock_path
from torchbake.matrix.expand import expand
from torchbake.matrix.ignored import FILE, read_ignore
from torchbake.matrix.model import validate_matrix
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.matrix.yaml_source import parse_document
from torchbake.render.dockerfile import dockerfile_path

Files = Mapping[Path, bytes]  # what is not there is not in it
_SHOWN = 3  # files that a reason names
_FETCH = "Fetch it: git fetch origin main. A checkout of CI may hold the last commit alone (fetch-depth)."


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A project at an earlier commit. ``specs`` are by id; ``problem``: why its matrix cannot be read.

    ``commit`` is the full name of ``ref``; empty for what came before the first commit.
    """

    ref: str
    commit: str
    files: Files
    specs: Mapping[str, Spec]
    problem: str = ""


def files_of(project: Project) -> dict[str, tuple[Path, ...]]:
    """The files that decide an image, by id: Dockerfile, locks, and those of the toolkit in it."""
    return {spec.id: tuple(_files(project.root, spec)) for spec in project.expansion.specs}


def _files(root: Path, spec: Spec) -> list[Path]:
    locks = [lock_path(root, spec), builder_lock_path(root)] if isinstance(spec, ImageSpec) else []
    return [dockerfile_path(root, spec), *locks, *(TOOLKIT / name for name in toolkit_files(spec))]


def read_now(paths: Collection[Path]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in paths if path.is_file()}


def why_changed(spec: Spec, paths: Collection[Path], now: Files, then: Earlier) -> str:
    """What of an image differs from an earlier commit; empty where nothing does. ``paths`` are its files. Pure."""
    if then.problem:
        return f"the matrix of {then.ref} cannot be read: {then.problem}"
    old = then.specs.get(spec.id)
    if old is None:
        return f"not in the matrix of {then.ref}"
    keys = [key for key in differing(old, spec) if key != "line"]
    if keys:
        return f"its row changed: {', '.join(keys)}"
    return told([_label(path) for path in paths if now.get(path) != then.files.get(path)])


def told(changed: Sequence[str]) -> str:
    """Some files that changed, as a reason; empty where none did."""
    more = f" +{len(changed) - _SHOWN}" if len(changed) > _SHOWN else ""
    return f"changed: {', '.join(changed[:_SHOWN])}{more}" if changed else ""


def differing(one: Spec, other: Spec) -> list[str]:
    """The fields in which two images of one id differ."""
    if type(one) is not type(other):
        return ["kind"]
    return [field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name)]


def _label(path: Path) -> str:
    """A file as its folder's readers know it."""
    return f"{path.parent.name}/{path.name}" if path.is_relative_to(TOOLKIT) else path.name


def read_earlier(project: Project, ref: str, paths: Collection[Path]) -> Earlier:
    """The project at a commit: its matrix, and those of ``paths`` that are in the same repository.

    The others, a toolkit that is installed, are taken as they are now. Raises UsageError where git knows no such
    commit; the name of no commit, all zeros, is what came before the first: GitHub gives it for a new branch.
    """
    if set(ref) == {"0"}:
        return Earlier(ref="no commit", commit="", files={}, specs={})
    top, commit = _repository(project.root), _commit(project.root, ref)
    matrix = project.document.path.absolute()
    inside = {path: _below(path, top) for path in {*paths, matrix}}
    if project.root != TOOLKIT:  # one that only lies there, ignored or as a submodule, is as installed
        tracked = set(_names(top, "ls-files"))
        inside |= {path: "" for path, name in inside.items() if path.is_relative_to(TOOLKIT) and name not in tracked}
    found = _contents(top, commit, {path: name for path, name in inside.items() if name})
    same = read_now([path for path, name in inside.items() if not name])
    specs, problem = _specs(found.get(matrix), matrix)
    return Earlier(ref=ref, commit=commit, files={**same, **found}, specs=specs, problem=problem)


def changed_below(project: Project, then: Earlier, sources: Collection[str]) -> list[str]:
    """The files that an image takes of the matrix's folder, by path or glob, and that differ from then, by name."""
    if not sources or not then.commit:
        return []
    paths = [f":(literal){FILE}", *(each for source in sources for each in _pathspecs(source))]
    questions = ("diff", "--name-only", "--relative", then.commit), ("ls-files", "--others")
    names = {name for words in questions for name in _names(project.root, *words, paths=paths)}
    ignore = read_ignore(project.root)
    return sorted(name for name in names if name == FILE or ignore.takes(name, sources))


def _pathspecs(source: str) -> tuple[str, ...]:
    """As `own_inputs` understands a source: folders with all in them, but for bytecode."""
    glob = any(mark in source for mark in "*?[")
    found = (f":(glob){source}", f":(glob){source}/**") if glob else (f":(literal){source}",)
    return (*found, ":(exclude,glob)**/__pycache__/**")


def _names(folder: Path, *words: str, paths: Sequence[str] = ()) -> list[str]:
    """The names that git lists. Raises UsageError where it cannot."""
    done = run_git(folder, *words, "-z", "--", *paths)
    if done.returncode:
        raise git_failure(done, folder)
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _specs(data: bytes | None, path: Path) -> tuple[dict[str, Spec], str]:
    """The images of a matrix; where it is none by today's rules, why."""
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
    """A path as git names it; empty for one outside the repository."""
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
    """Files as they were committed, in one question; those that were not are not in it."""
    asked = "".join(f"{commit}:{name}\n" for name in names.values())
    done = run_git(top, "cat-file", "--batch", given=asked.encode())
    if done.returncode:
        raise git_failure(done, top)
    data = done.stdout
    found, place = dict[Path, bytes](), 0
    for path in names:
        end = data.index(b"\n", place)
        head, place = data[place:end].rsplit(b" ", 2), end + 1
        if head[-1] == b"missing":
            continue
        size = int(head[-1])
        if head[-2] == b"blob":
            found[path] = data[place : place + size]
        place += size + 1
    return found
