"""Writing files so that nobody ever sees half of one, and reading none that is something else."""

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torchbake.core.ownership import check_links

_MODE = 0o644  # of a new file; one that is there keeps its own
# The lowest descriptor for child processes: as an ordinary user, buildah starts itself again with its own from 3 on.
_INHERITED = 100


def read_text(path: Path) -> str:
    """A file's text, to the byte.

    Raises OSError, also for a pipe or a device, which may never end, and UnicodeDecodeError.
    """
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise OSError(errno.EINVAL, "is a pipe or a device, not a file", str(path))
    return path.read_bytes().decode("utf-8")


# What some process has open, perhaps a file behind what stands in it already.
_OPEN_ALREADY = re.compile(r"/dev/(?:stdout|stderr|fd/)|/proc/")


def write_text(path: Path, text: str) -> None:
    """Write beside, then rename: readers see the old file or the new one. Raises OSError."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path whose content becomes that of ``path`` when the block ends well, and goes when it does not.

    What a link points at is replaced, never the link, and no link of another user is followed. A device, a FIFO or
    /dev/stdout is no file that could be replaced: it is written to, as the shell's `>>` does.
    """
    check_links(path)
    status = _status(path)
    if status and (not stat.S_ISREG(status.st_mode) or _OPEN_ALREADY.match(str(path))):
        with _passing_on(path) as temporary:
            yield temporary
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(stat.S_IMODE(status.st_mode) if status else _MODE)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _passing_on(path: Path) -> Iterator[Path]:
    """A file whose content is sent to ``path``, which is there and stays what it is; a folder raises OSError."""
    with tempfile.NamedTemporaryFile(prefix="torchbake-") as file:
        yield Path(file.name)
        # Neither made nor emptied: it is what it is, or it has gone meanwhile, which is an error.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as sink, Path(file.name).open("rb") as source:
            shutil.copyfileobj(source, sink)


@contextmanager
def in_memory(text: str) -> Iterator[Path]:
    """A file with a secret, which goes with this process, also if it is killed.

    Only a child process that inherits descriptors (``close_fds=False``) can open it.
    """
    with os.fdopen(os.memfd_create("torchbake"), "w") as file:
        file.write(text)
        file.flush()
        inherited = fcntl.fcntl(file, fcntl.F_DUPFD, _INHERITED)
    try:
        yield Path(f"/dev/fd/{inherited}")
    finally:
        os.close(inherited)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def freed_by(*groups: Iterable[Path]) -> tuple[int, ...]:
    """Return the bytes that are free when each of these groups of files is removed, after the groups before it.

    A file that has another name elsewhere stays.
    """
    names: Counter[tuple[int, int]] = Counter()
    return tuple(sum(_freed(path.lstat(), names) for path in files) for files in groups)


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder but links; none if it does not exist."""
    return [path for path in folder.rglob("*") if _is_file(path)]


def _freed(status: os.stat_result, names: "Counter[tuple[int, int]]") -> int:
    """The bytes that go with one more name of a file, of ``names`` that went before."""
    inode = (status.st_dev, status.st_ino)
    names[inode] += 1
    return status.st_size if names[inode] == status.st_nlink else 0


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def linked(source: Path, target: Path) -> None:
    """The same file under another name, in place of what has it: a hard link, or a copy where there can be none."""
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, where there is one; raises OSError for what cannot go.

    Its name goes first, so nobody takes for whole what is left where this is interrupted: the next call removes that.
    """
    gone = folder.with_name(f".{folder.name}.gone")
    if gone.is_dir():
        shutil.rmtree(gone)
    if folder.is_dir():
        folder.rename(gone)
        shutil.rmtree(gone)
