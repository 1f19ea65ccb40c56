"""Check the owners of a path and of its links. Imports the standard library alone."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

MOST_LINKS = 40  # on one path, as in the kernel


def check_links(path: Path) -> None:
    """Raise PermissionError if ``path`` contains a link of another user, except root.

    The owner of a link can point it at any file that this user may write.
    """
    own = {0, os.geteuid()}
    for place, status in _existing(path):
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in own:
            reason = f"A link of the user {user_name(status.st_uid)} is not followed"
            raise PermissionError(errno.EPERM, reason, str(place))


def swappable(path: Path) -> Path | None:
    """Return the first part of ``path`` that a user other than root can replace; None if there is none.

    Missing parts count as root's. In a sticky folder, such as /tmp, only the owner can replace a file.
    """
    for place, status in _existing(path):
        others_write = stat.S_ISDIR(status.st_mode) and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if status.st_uid != 0 or (others_write and not status.st_mode & stat.S_ISVTX):
            return place
    return None


def is_own(path: Path) -> bool:
    """Return whether this user or root owns a path, or its nearest existing parent; False if it cannot be read."""
    try:
        *_, (_, status) = _existing(path)
    except PermissionError:
        return False
    return status.st_uid in (0, os.geteuid())


def user_name(uid: int) -> str:
    """Return the name of a user, or the number if it has none."""
    import pwd  # noqa: PLC0415 - not on Windows, where setup says what to do

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _existing(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each existing part of ``path`` from the root on, links and their targets. Raises OSError."""
    left, here, links = [*reversed(path.absolute().parts)], Path("/"), 0
    while left:
        name = left.pop()
        if name == "/":
            here = Path(name)
        elif name == "..":
            here = here.parent
            continue
        else:
            here /= name
        try:
            status = here.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        yield here, status
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            left += reversed(here.readlink().parts)
            here = here.parent
