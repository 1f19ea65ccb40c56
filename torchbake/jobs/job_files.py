"""The files of a job's folder that a manifest carries: the choice of files, and the reasons to refuse one."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from torchbake.core.git import git_failure, run_git
from torchbake.core.secret_names import looks_secret
from torchbake.core.secret_values import secret_text
from torchbake.errors import MatrixError, UsageError
from torchbake.jobs.expressible import Problem
from torchbake.jobs.field_types import Files
from torchbake.matrix.dockerignore import DockerIgnore, read_ignore

MOST_BYTES = 1_000_000  # a ConfigMap takes 1 MiB, with its metadata

# Output of a launcher, or of a shell that redirects `job show`.
_OUTPUT = DockerIgnore(lines=("**/*.out", "**/*.err", "**/*.log"))

# Programs may have a name such as `auth.py`. A secret in their text is still an error.
_PROGRAMS = (".py", ".sh")

_OTHER_WAYS = "use `files.git`, or an image with the files in it"


def read_files(folder: Path, files: Files, job_file: Path, problems: list[Problem]) -> dict[str, bytes]:
    """Return the files that a manifest carries, by their path within the folder.

    Hidden files and bytecode are never carried. Each file that no manifest can carry is added to ``problems``.
    Raises UsageError if git cannot read the repository of the folder.
    """
    try:
        names = sorted(_names(folder))
        for place, pattern in enumerate(files.include):
            if not any(map(DockerIgnore(lines=(pattern,)).leaves_out, names)):
                problems.append((("files", "include", place), f"no file below {folder} is like this: correct it"))
        return _read(folder, select_files(files, names, _ignore(folder, job_file, names)), files.include, problems)
    except MatrixError as error:  # a pattern is malformed
        problems.append((("files",), error.sentence))
    except OSError as error:
        where = os.fsencode(error.filename or folder).decode(errors="replace")
        problems.append((("files", "folder"), f"{where}: {error.strerror}: correct it, or take it out of the folder"))
    return {}


def select_files(files: Files, names: Iterable[str], ignored: Collection[str] = ()) -> list[str]:
    """Return the names that `files` takes. An ignored file is taken if `include` has its very path. Pure."""
    include, exclude = DockerIgnore(lines=files.include), DockerIgnore(lines=files.exclude)
    used_names = [name for name in names if not files.include or include.leaves_out(name)]
    return [
        name for name in used_names if not exclude.leaves_out(name) and (name not in ignored or name in files.include)
    ]


def _ignore(folder: Path, job_file: Path, names: Sequence[str]) -> set[str]:
    """Return the files that .dockerignore and git ignore, the job file itself, and output. Raises UsageError."""
    docker = read_ignore(folder)
    ignored = {name for name in names if docker.leaves_out(name) or _OUTPUT.leaves_out(name)}
    ignored |= {name for name in names if folder / name == job_file}
    if not names or not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return ignored
    # "./": git reads a path that begins with a colon as a pathspec with magic
    paths = b"".join(b"./" + os.fsencode(name) + b"\0" for name in names)
    try:
        process = run_git(folder, "check-ignore", "--stdin", "-z", stdin=paths)
    except FileNotFoundError:
        raise UsageError(f"{folder} is in a git repository, and git is not installed.", hint="Install git.") from None
    if process.returncode not in (0, 1):
        raise git_failure(process, folder)
    return ignored | {os.fsdecode(name).removeprefix("./") for name in process.stdout.split(b"\0")}


def _names(folder: Path) -> Iterator[str]:
    """Yield each path below a folder, without bytecode and hidden files. Raises OSError."""
    for here, folders, names in os.walk(folder, onerror=_stop):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in (*names, *links):
            if not name.startswith(".") and not name.endswith(".pyc"):
                yield Path(here, name).relative_to(folder).as_posix()


def _stop(error: OSError) -> None:
    raise error


def _read(folder: Path, names: Sequence[str], include: Sequence[str], problems: list[Problem]) -> dict[str, bytes]:
    sizes = {name: _file(folder / name).stat().st_size for name in names}
    for name, size in sizes.items():
        if size > MOST_BYTES:
            large = f"{name} has {size} bytes, and a ConfigMap takes {MOST_BYTES}"
            problems.append((("files", "folder"), f"{large}: leave it out by `files.exclude`, {_OTHER_WAYS}"))
    if problems:
        return {}
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        large = f"{folder} holds more than {MOST_BYTES} bytes, which no ConfigMap takes; its largest file is {largest}"
        problems.append((("files", "folder"), f"{large}: leave files out by `files.exclude`, {_OTHER_WAYS}"))
        return {}
    contents = {name: (folder / name).read_bytes() for name in names}
    for name, data in contents.items():
        if secret_text(data.decode(errors="replace")):
            secret = f"{name} holds a key, a token or a password"
            problems.append((("files", "folder"), f"{secret}: leave it out by `files.exclude`, and use `secrets`"))
        elif _is_named_like_a_secret(name) and name not in include:
            secret = f"{name} is named like a secret: leave it out by `files.exclude`, and use `secrets`"
            problems.append((("files", "folder"), f"{secret}; if it is no secret, add its path to `files.include`"))
    return contents


def _is_named_like_a_secret(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix not in _PROGRAMS and looks_secret(re.sub(r"[^A-Za-z0-9]+", "_", path.name))


def _file(path: Path) -> Path:
    """Return the path of a file that can be carried. Raises OSError for any other, which the job would miss."""
    if not path.is_file():
        kind = "is a link to no file" if path.is_symlink() else "is not a file"
        raise OSError(0, f"{kind}, and only files are carried", str(path))
    if not path.name.isprintable():
        raise OSError(0, "its name is not UTF-8, or holds control characters", str(path))
    return path
