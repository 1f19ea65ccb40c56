"""Atomic writes of files, reads that refuse pipes and devices, and sizes of files that share their data."""

import errno
import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torchbake.core.foreign_folder import is_foreign, replacing_in_foreign
from torchbake.core.ownership import check_links

_MODE = 0o644  # of a new file; an existing file keeps its mode
# Descriptors of the process: a file behind such a path may have content already, which must stay.
_OPEN_ALREADY = re.compile(r"/dev/(?:stdout|stderr|fd/)|/proc/")
# The lowest descriptor for child processes: as an ordinary user, buildah starts itself again with its own from 3 on.
_INHERITED = 100


def read_text(path: Path) -> str:
    """Read a file's text, with its line ends unchanged.

    Raises UnicodeDecodeError, and OSError, also for a pipe or a device, which may never end.
    """
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise OSError(errno.EINVAL, "is a pipe or a device, not a file", str(path))
    return path.read_bytes().decode("utf-8")


def write_text(path: Path, text: str) -> None:
    """Replace a file's text at once: readers see the old text or the new one. Raises OSError."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_texts(texts: Mapping[Path, str]) -> None:
    """Replace the texts of several files, once all of them are on the disk. Raises OSError, and then changes none."""
    with ExitStack() as stack:
        for path, text in texts.items():
            stack.enter_context(replacing(path)).write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file. It replaces ``path`` when the block ends well, and is removed if the block raises.

    Of a link the target is replaced; a link of another user raises PermissionError. A device, a FIFO and /dev/stdout
    cannot be replaced: the content is appended to them, as by the shell's `>>`.
    """
    if is_foreign(path) and not _OPEN_ALREADY.match(str(path)):
        with replacing_in_foreign(path, _MODE) as temporary:
            yield temporary
        return
    check_links(path)
    status = path.stat() if path.exists() else None
    if status and (not stat.S_ISREG(status.st_mode) or _OPEN_ALREADY.match(str(path))):
        with tempfile.NamedTemporaryFile(prefix="torchbake-") as file:
            yield Path(file.name)
            # Without O_CREAT: a FIFO that was removed by now is an error. A folder is one too.
            with (
                os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as sink,
                Path(file.name).open("rb") as source,
            ):
                shutil.copyfileobj(source, sink)
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
def in_memory(text: str) -> Iterator[Path]:
    """Yield the path of a secret in memory, which nothing leaves behind, even if this process is killed.

    Only a child process that inherits descriptors (``close_fds=False``) can open it.
    """
    import fcntl  # noqa: PLC0415 - not on Windows, where setup says what to do

    with os.fdopen(os.memfd_create("torchbake"), "w") as file:
        file.write(text)
        file.flush()
        inherited = fcntl.fcntl(file, fcntl.F_DUPFD, _INHERITED)
    try:
        yield Path(f"/dev/fd/{inherited}")
    finally:
        os.close(inherited)


def freed_by(*groups: Iterable[Path]) -> tuple[int, ...]:
    """Return the bytes that the removal of each group of files frees, if the groups before it are removed first.

    A file's data is free when its last hard link is removed.
    """
    removed: Counter[tuple[int, int]] = Counter()  # hard links, by the file's inode

    def freed(status: os.stat_result) -> int:
        inode = (status.st_dev, status.st_ino)
        removed[inode] += 1
        return status.st_size if removed[inode] == status.st_nlink else 0

    return tuple(sum(freed(path.lstat()) for path in files) for files in groups)


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder but links; none if it does not exist."""
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def linked(source: Path, target: Path) -> None:
    """Replace ``target`` by a hard link to ``source``, or by a copy on another file system."""
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, if it exists. Raises OSError if a file cannot be removed.

    It is renamed first, so that nobody reads half a folder after an interruption. The next call removes the rest.
    """
    path = folder.with_name(f".{folder.name}.gone")
    if path.is_dir():
        shutil.rmtree(path)
    if folder.is_dir():
        folder.rename(path)
        shutil.rmtree(path)


def link_or_copy(source: Path, target: Path) -> None:
    """Make ``target``, unless it exists: a hard link of ``source``, or a copy on another file system."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        with replacing(target) as beside:
            shutil.copy2(source, beside)
