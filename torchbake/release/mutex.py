"""Releases take turns: one at a time for a repository, among all users of this machine."""

import contextlib
import fcntl
import os
import pwd
import stat
import tempfile
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from torchbake.errors import StorageError
from torchbake.registry.client import Registry

_THREADS: dict[str, threading.Lock] = {}


@contextlib.contextmanager
def locked(registry: Registry) -> Iterator[None]:
    """One release at a time for a repository, among all users of this machine.

    A registry has no lock of its own: releases from several machines are put in a row by their CI (docs/releases.md).
    Raises StorageError where the lock cannot be used.
    """
    name = sha256(str(registry.repository).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"torchbake-release-{name}.lock")
    with _THREADS.setdefault(name, threading.Lock()):
        handle = _open(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _open(path: Path) -> int:
    """The lock's file, whoever made it: to read it is enough for a lock, and others may not write to it in /tmp."""
    while True:
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            os.fchmod(handle, 0o644)  # whatever the umask says
            return handle
        try:
            # Neither a link nor a FIFO that somebody has put there is waited for.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # it went meanwhile
        except OSError as error:
            raise _unusable(path, error.strerror or str(error)) from None
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        raise _unusable(path, "it is not a plain file")


def _unusable(path: Path, reason: str) -> StorageError:
    try:
        owner = pwd.getpwuid(path.lstat().st_uid).pw_name
    except (OSError, KeyError):
        owner = "another user"
    return StorageError(
        f"{path}, by which releases of one repository take turns, cannot be opened: {reason}.",
        hint=f"It belongs to {owner}; have it removed, and publish again.",
    )
