"""The files of a folder that are sent somewhere: the choice of files, and the reasons to refuse one."""

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from torchbake.core.git import git_failure, is_below_git, run_git
from torchbake.core.secret_names import looks_secret
from torchbake.core.secret_values import secret_text
from torchbake.errors import MatrixError, UsageError
from torchbake.matrix.dockerignore import DockerIgnore, read_ignore

# Output of a launcher, or of a shell that redirects `job show`.
_OUTPUT = DockerIgnore(lines=("**/*.out", "**/*.err", "**/*.log"))
# A manifest of `job show` for Kubernetes holds the job's files, so the next one would hold all of them twice.
_MANIFEST = re.compile(
    r"(#.*\n)*apiVersion: v1\nkind: ConfigMap\n(.*\n){0,9} +app\.kubernetes\.io/managed-by: torchbake\n"
)
_MOST_OF_HEAD = 4096  # characters of a file that are compared with a manifest
# Programs may have a name such as `auth.py`. A secret in their text is still an error.
_PROGRAMS = (".py", ".sh")
# Bytes of a file that is searched for secrets: keys and settings are small, data and weights are not.
_MOST_SEARCHED = 2 * 2**20
_MOST_NAMED = 5  # files in one message
_SUBMODULE = "160000 "  # git's mode of one, in its list of files


def choose_files(
    folder: Path, *, include: Sequence[str] = (), exclude: Sequence[str] = (), leave_out: Path | None = None
) -> list[str]:
    """Return the files of a folder by their paths within it, sorted, without ignored ones.

    Patterns are those of .dockerignore. Raises UsageError if nothing is left, if a pattern of ``include`` matches no
    file, or if a file looks like a secret. Raises it also if git cannot read the folder's repository, and OSError.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", hint="Name the folder with the code.")
    try:
        names = folder_names(folder)
        if unused := unused_patterns(include, names):
            raise UsageError(f"No file below {folder} is like {unused[0]!r}.", hint="Correct the pattern.")
        files = select_files(names, include, exclude, ignored_files(folder, names, leave_out))
    except MatrixError as error:  # a pattern is malformed
        raise UsageError(error.message, hint=error.hint) from None
    if not files:
        raise UsageError(f"{folder} holds no file to send: hidden and ignored files are left out.")
    if reasons := [reason for name in files if (reason := _secret_in_file(folder, name, include))]:
        more = f", and {len(reasons) - _MOST_NAMED} more" if len(reasons) > _MOST_NAMED else ""
        raise UsageError(
            f"{'; '.join(reasons[:_MOST_NAMED])}{more}.",
            hint=f"Leave such a file out, by an exclude pattern or by {folder / '.dockerignore'}; "
            "if only its name looks like a secret, include `**` and its path.",
        )
    return files


def folder_names(folder: Path) -> list[str]:
    """Return each file below a folder, without bytecode and hidden files, sorted. Raises OSError."""
    return sorted(_names(folder))


def select_files(
    names: Iterable[str], include: Sequence[str], exclude: Sequence[str], ignored: Collection[str] = ()
) -> list[str]:
    """Return the names that the patterns choose. An ignored file is taken if ``include`` has its very path. Pure."""
    only, never = DockerIgnore(lines=tuple(include)), DockerIgnore(lines=tuple(exclude))
    used_names = [name for name in names if not include or only.leaves_out(name)]
    return [name for name in used_names if not never.leaves_out(name) and (name not in ignored or name in include)]


def unused_patterns(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the patterns that match no name. Raises MatrixError for a malformed pattern."""
    return [pattern for pattern in patterns if not any(map(DockerIgnore(lines=(pattern,)).leaves_out, names))]


def ignored_files(folder: Path, names: Sequence[str], leave_out: Path | None = None) -> set[str]:
    """Return the files that .dockerignore and git ignore, output, and the file ``leave_out``. Raises UsageError.

    Output is also the file to which this process's stdout goes, and an earlier manifest for Kubernetes.
    """
    docker = read_ignore(folder)
    ignored = {name for name in names if docker.leaves_out(name) or _OUTPUT.leaves_out(name)}
    ignored |= {name for name in names if folder / name == leave_out or _is_own_output(folder / name)}
    if not names or not is_below_git(folder):
        return ignored
    try:
        return ignored | _ignored_by_git(folder, names)
    except FileNotFoundError:
        raise UsageError(f"{folder} is in a git repository, and git is not installed.", hint="Install git.") from None


def _ignored_by_git(folder: Path, names: Sequence[str]) -> set[str]:
    """Return the names that git ignores. Files of a submodule have the rules of its own repository."""
    ignored = set[str]()
    for module in _submodules(folder):
        below = [name.removeprefix(f"{module}/") for name in names if name.startswith(f"{module}/")]
        names = [name for name in names if not name.startswith(f"{module}/")]
        if below and (folder / module / ".git").exists():  # else nobody has checked it out
            ignored |= {f"{module}/{name}" for name in _ignored_by_git(folder / module, below)}
    # "./": git reads a path that begins with a colon as a pathspec with magic
    paths = b"".join(b"./" + os.fsencode(name) + b"\0" for name in names)
    process = run_git(folder, "check-ignore", "--stdin", "-z", stdin=paths)
    if process.returncode not in (0, 1):
        raise git_failure(process, folder)
    return ignored | {os.fsdecode(name).removeprefix("./") for name in process.stdout.split(b"\0")}


def _submodules(folder: Path) -> list[str]:
    process = run_git(folder, "ls-files", "--stage", "-z")
    if process.returncode:
        raise git_failure(process, folder)
    entries = (os.fsdecode(entry).partition("\t") for entry in process.stdout.split(b"\0"))
    return [name for head, _, name in entries if head.startswith(_SUBMODULE)]


def _is_own_output(path: Path) -> bool:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or path.is_symlink():
            return False
        if os.path.samestat(status, os.fstat(1)):
            return True
        if path.suffix not in (".yaml", ".yml"):
            return False
        with path.open(encoding="utf-8", errors="replace") as file:
            return _MANIFEST.match(file.read(_MOST_OF_HEAD)) is not None
    except OSError:  # the reader of the file names the reason
        return False


def secret_reason(name: str, data: bytes, include: Collection[str]) -> str:
    """Return why a file looks like a secret; empty if it does not. A name of ``include`` may look like one."""
    if secret_text(data.decode(errors="replace")):
        return f"{name} holds a key, a token or a password"
    return f"{name} is named like a secret" if _is_named_like_a_secret(name) and name not in include else ""


def _secret_in_file(folder: Path, name: str, include: Collection[str]) -> str:
    path = folder / name
    is_text = not path.is_symlink() and path.is_file() and path.stat().st_size <= _MOST_SEARCHED
    return secret_reason(name, path.read_bytes() if is_text else b"", include)


def _is_named_like_a_secret(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix not in _PROGRAMS and looks_secret(re.sub(r"[^A-Za-z0-9]+", "_", path.name))


def _names(folder: Path) -> Iterator[str]:
    for here, folders, names in os.walk(folder, onerror=_stop):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in (*names, *links):
            if not name.startswith(".") and not name.endswith(".pyc"):
                yield Path(here, name).relative_to(folder).as_posix()


def _stop(error: OSError) -> None:
    raise error
