"""A lock among all users of this machine: only one release at a time writes to a repository.

Any user can hold the lock. So a wait is reported with the process that has the lock, and ends after a time.
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
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from torchbake.errors import PublishError, StorageError
from torchbake.registry.client import Registry
from torchbake.ui.console import say

_LONGEST = 1800.0  # Seconds that a process may have the lock. It sets tags and signs then, and sends no layers.
_SOON = 5.0  # Seconds until a wait is reported.
_PAUSE = 0.1  # seconds


@dataclass
class _Wait:
    """The lock among threads of this process, and the process that has the file's lock since a time."""

    thread: threading.Lock = field(default_factory=threading.Lock)
    holder: int | None = None
    since: float | None = None


_WAITS: dict[str, _Wait] = {}


@contextlib.contextmanager
def locked(registry: Registry) -> Iterator[None]:
    """Hold the lock of a repository. Raises StorageError if the lock file is unusable, and PublishError after a time.

    A registry has no locks: if several machines release, their CI must run one release at a time:
    docs/explanation/releases.md.
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
    start, reported = time.monotonic(), False
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            wait.since = None
            return
        now, holder = time.monotonic(), _holder(handle)
        if wait.since is None or holder != wait.holder:
            wait.holder, wait.since = holder, now
        if now - wait.since > _LONGEST:
            lock = f"the lock {path} of releases to {repository}"
            message = f"{_owner(holder)} has had {lock} for {_LONGEST / 60:.0f} minutes."
            raise PublishError(message, hint="Wait until that process has ended, or end it. Then run again.")
        if now - start > _SOON and not reported:
            say(f"{repository}: waiting for {_owner(holder)}, which has the lock {path}")
            reported = True
        time.sleep(_PAUSE)


def _holder(handle: int) -> int | None:
    """Return the pid of the process that has the lock, if the kernel shows it."""
    place = f":{os.fstat(handle).st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()  # 1: FLOCK  ADVISORY  WRITE 3170 fe:00:1466489 0 EOF; a waiting one has `->`
            if words[1] == "FLOCK" and words[5].endswith(place) and int(words[4]) > 0:
                return int(words[4])
    return None


def _owner(holder: int | None) -> str:
    if holder is None:
        return "another process"
    try:
        return f"process {holder} of {pwd.getpwuid(Path(f'/proc/{holder}').stat().st_uid).pw_name}"
    except (OSError, KeyError):
        return f"process {holder}"


def _open(path: Path) -> int:
    """Open the lock's file for reading, which is enough for a lock: another user's file in /tmp is not writable."""
    while True:
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            os.fchmod(handle, 0o644)  # the umask may have removed rights
            return handle
        try:
            # Refuses a link, and does not wait for a FIFO: anybody can put these there.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process removed the file since
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
        f"{path}, the lock of releases to one repository, cannot be opened: {reason}.",
        hint=f"It belongs to {owner}; have it removed, and publish again.",
    )
