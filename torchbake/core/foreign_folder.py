"""Writes of root into a folder that another user may rename or replace at any moment.

A path that was checked may lead elsewhere when it is used. So each part is opened by the descriptor of the part before
it, and a file is written by its own descriptor.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchbake.core.ownership import MOST_LINKS, swappable, user_name

# macOS has no O_PATH, and Windows none of these, where `setup` must still say what to do.
_FOLDER = sum(getattr(os, name, 0) for name in ("O_PATH", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"))


def is_foreign(path: Path) -> bool:
    """Return whether this is root, and another user can replace a part of the path."""
    return not os.geteuid() and swappable(path) is not None


@contextmanager
def replacing_in_foreign(path: Path, mode: int) -> Iterator[Path]:
    """Yield a temporary file of this process, which replaces ``path`` as in `replacing`.

    A new file gets ``mode``. Raises OSError, also for a link of another user, a device and a FIFO.
    """
    with opened_folder(path) as (folder, name):
        status = _status(name, folder)
        if status and not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a plain file", str(path))
        temporary = f".{name}.{secrets.token_hex(8)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with _whole_path(path):
            descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
            # The other user's file may have the setuid bit, which root's must not get.
            os.fchmod(descriptor, status.st_mode & 0o777 if status else mode)
            with _whole_path(path):
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(descriptor)
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)


@contextmanager
def opened_folder(path: Path) -> Iterator[tuple[int, str]]:
    """Open the folder of a file, which is made if it is missing, and yield its descriptor and the file's name.

    Links of this user and of root are followed, also at the end. Raises PermissionError for any other link, and
    IsADirectoryError for a link to "/" or to its own folder.
    """
    left, links = [*reversed(path.absolute().parts[1:])], 0
    folder = os.open("/", _FOLDER)
    try:
        while left:
            name = left.pop()
            with _whole_path(path):
                status = _status(name, folder)
            if status and stat.S_ISLNK(status.st_mode):
                links += 1
                parts = _target(path, name, folder, status, links)
                left += reversed(parts)
                if not parts or not parts[0].startswith("/"):
                    continue
                left.pop()
                name = "/"
            elif not left:
                yield folder, name
                return
            elif status is None:
                with _whole_path(path), suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
            with _whole_path(path):
                below = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))  # a link to "." or "/"
    finally:
        os.close(folder)


def open_file(path: Path, flags: int) -> int:
    """Open a file below the folder of `opened_folder`, with mode 0644 if it is new, and return its descriptor."""
    with opened_folder(path) as (folder, name), _whole_path(path):
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)


@contextmanager
def _whole_path(path: Path) -> Iterator[None]:
    """Name the whole path in an OSError, which has a part of it alone."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def _target(path: Path, name: str, folder: int, status: os.stat_result, links: int) -> tuple[str, ...]:
    """Return the parts of a link's target. Raises OSError if the link must not be followed."""
    if status.st_uid not in (0, os.geteuid()):
        reason = f"A link of the user {user_name(status.st_uid)} is not followed"
        raise PermissionError(errno.EPERM, reason, str(path))
    if links > MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return Path(os.readlink(name, dir_fd=folder)).parts


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
