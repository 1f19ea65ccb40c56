"""The owners of the places on a path: links and folders of other users are not followed. The standard library alone."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_LINKS = 40  # that are followed on one path, as by the kernel


def check_links(path: Path) -> None:
    """Raise PermissionError if a link on the way to ``path`` belongs to another user than this one and root.

    The owner of a link can point it at any file that this user may write.
    """
    own = {0, os.geteuid()}
    for place, status in _existing(path):
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in own:
            reason = f"A link of the user {user_name(status.st_uid)} is not followed"
            raise PermissionError(errno.EPERM, reason, str(place))


def swappable(path: Path) -> Path | None:
    """Return the first place on the way to ``path`` that another user than root can replace; None if there is none.

    Places that do not exist yet count as root's. Names in a sticky folder, such as /tmp, stay with their owners.
    """
    for place, status in _existing(path):
        others_write = stat.S_ISDIR(status.st_mode) and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if status.st_uid != 0 or (others_write and not status.st_mode & stat.S_ISVTX):
            return place
    return None


def is_own(path: Path) -> bool:
    """Return whether this user or root owns a path, or if it does not exist, the folder that it would be made in.

    A path that this user may not look at is not its own.
    """
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
    """Each place from the root to ``path`` as far as it exists, links and what they lead to. Raises OSError."""
    waiting, here = [*reversed(path.absolute().parts)], Path("/")
    links = 0
    while waiting:
        name = waiting.pop()
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
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            waiting += reversed(here.readlink().parts)
            here = here.parent
