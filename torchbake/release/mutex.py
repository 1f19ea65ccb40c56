"""Releases take turns: one at a time for a repository, among all users of this machine.

Every user can hold the lock, so a wait is reported, with the process that has the lock, and has an end.
"""

import contextlib
import fcntl
import os
import pwd
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from torchbake.errors import PublishError, StorageError
from torchbake.registry.client import Registry
from torchbake.ui.console import say

_LONGEST = 1800.0  # seconds that one process may have the lock: it sets tags and signs, and sends no layers
_SOON = 5.0  # seconds until a wait is reported
_PAUSE = 0.1  # seconds


class _Wait:
    """The threads of this process that want one lock, the process that has it, and since when."""

    def __init__(self) -> None:
        self.thread = threading.Lock()
        self.holder: int | None = None
        self.since: float | None = None


_WAITS: dict[str, _Wait] = {}


@contextlib.contextmanager
def locked(registry: Registry) -> Iterator[None]:
    """One release at a time for a repository, among all users of this machine.

    A registry has no lock of its own: releases from several machines are put in a row by their CI (docs/releases.md).
    Raises StorageError if the lock cannot be used, and PublishError if another process has it for too long.
    """
    name = sha256(str(registry.repository).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"torchbake-release-{name}.lock")
    wait = _WAITS.setdefault(name, _Wait())
    with wait.thread:
        handle = _open(path)
        try:
            _take(handle, path, wait, str(registry.repository))
            yield
        finally:
            os.close(handle)


def _take(handle: int, path: Path, wait: _Wait, repository: str) -> None:
    begun, reported = time.monotonic(), False
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            wait.since = None
            return
        now, holder = time.monotonic(), _holder(handle)
        if wait.since is None or holder != wait.holder:
            wait.holder, wait.since = holder, now
        if now - wait.since > _LONGEST:
            raise PublishError(
                f"{_named(holder)} has had the lock {path} for {_LONGEST / 60:.0f} minutes; releases to {repository} "
                "take turns by it.",
                hint="Wait until that process has ended, or have it ended. Then run again.",
            )
        if now - begun > _SOON and not reported:
            say(f"{repository}: waiting for {_named(holder)}, which has the lock {path}")
            reported = True
        time.sleep(_PAUSE)


def _holder(handle: int) -> int | None:
    """The id of the process that has the lock, if the kernel shows it."""
    place = f":{os.fstat(handle).st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()  # 1: FLOCK  ADVISORY  WRITE 3170 fe:00:1466489 0 EOF; a waiting one has `->`
            if words[1] == "FLOCK" and words[5].endswith(place) and int(words[4]) > 0:
                return int(words[4])
    return None


def _named(holder: int | None) -> str:
    if holder is None:
        return "another process"
    try:
        return f"process {holder} of {pwd.getpwuid(Path(f'/proc/{holder}').stat().st_uid).pw_name}"
    except (OSError, KeyError):
        return f"process {holder}"


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
