"""Blobs by their digests in one folder: how they get there, when they count as sound, and who may remove them.

A blob is written to another file and renamed, so a killed run leaves no part of one under a digest. The rename comes
without fsync: after a power failure a blob may be short, which its size shows.

A sound blob is sealed: its file is read-only and has a constant modification time. Every program that writes to the
file changes that time, and then the blob is hashed before its next use. To hash all blobs of each build would take
seconds. A disk that changes bytes by itself leaves the time as it is: engines and registries find that, as they hash
what they get, and so does `torchbake store verify`.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from torchbake.core.digest import file_digest
from torchbake.core.files import freed_by, replacing
from torchbake.core.ownership import check_links
from torchbake.oci.manifest import Blob

WORK = ".work-"  # begins the names of folders that belong to one run
_SEALED = 0  # nanoseconds since 1970
_READ_ONLY = 0o444
# Killed runs leave folders, unfinished records and indexes, and locks of keys.
_LEFT = (f"{WORK}*", ".index.json.*", ".oci-layout.*", "wheels/.*", "locks/*")
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class StoreEntry:
    """A layer or an image of a store. ``key`` is the layer's key or the image's digest.

    ``last_use`` is the time of its last use in seconds since 1970; None if it is not known.
    """

    key: str
    name: str
    blobs: tuple[Blob, ...]
    last_use: float | None = None

    @property
    def size(self) -> int:
        return sum({blob.digest: blob.size for blob in self.blobs}.values())


@dataclass(frozen=True, kw_only=True)
class Blobs:
    """The blobs in ``folder``, which need not exist: what all stores have in common."""

    folder: Path

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs" / "sha256"

    def path(self, digest: str) -> Path:
        """Return the file of a blob, whether it exists or not."""
        return self.blobs / digest.removeprefix("sha256:")

    def files(self) -> list[Path]:
        """Return the files of all blobs, sorted by digest."""
        try:
            return sorted(path for path in self.blobs.iterdir() if _NAME.fullmatch(path.name))
        except FileNotFoundError:
            return []

    def entries(self) -> Sequence[StoreEntry]:
        """Return what the store holds, by its index alone: blobs may be damaged or missing."""
        raise NotImplementedError

    def drop_incomplete(self) -> None:
        """Remove from the index what has lost a blob."""
        raise NotImplementedError

    def holds(self, blob: Blob) -> bool:
        """Return whether a blob is there and sound."""
        path = self.path(blob.digest)
        try:
            status = path.stat()
            if status.st_size != blob.size:
                return False
            if status.st_mtime_ns != _SEALED:
                if file_digest(path) != blob.digest:
                    return False
                _seal(path)
        except OSError:
            return False
        return True

    def size_fits(self, blob: Blob) -> bool:
        """Return whether a blob is there and has its size."""
        try:
            return self.path(blob.digest).stat().st_size == blob.size
        except OSError:
            return False

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep other processes from removing blobs until the block ends. A read-only store needs no lock."""
        with contextlib.ExitStack() as holder:
            try:
                holder.enter_context(locked(self.folder / ".lock", fcntl.LOCK_SH))
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EROFS):
                    raise
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from using the store. Raises BlockingIOError if one does."""
        with locked(self.folder / ".lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    def _move(self, file: Path, digest: str) -> None:
        """Move a file into the store whose digest was computed while it was written."""
        _seal(file)
        file.replace(self.path(digest))

    def _write(self, digest: str, data: bytes) -> None:
        with replacing(self.path(digest)) as new:
            new.write_bytes(data)
        _seal(self.path(digest))

    def _unused_files(self, needs: set[str]) -> list[Path]:
        """Return the files of all other blobs, with the unfinished files of killed runs."""
        files = self.blobs.iterdir() if self.blobs.is_dir() else ()
        return [path for path in files if f"sha256:{path.name}" not in needs]

    def _remove(self, files: Sequence[Path]) -> int:
        """Remove files, and all that killed runs left; return the bytes that this frees."""
        (freed,) = freed_by(files)
        for path in files:
            path.unlink()
        for left in chain.from_iterable(map(self.folder.glob, _LEFT)):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink()
        return freed


def _seal(path: Path) -> None:
    with contextlib.suppress(OSError):  # of another user, or read-only: it is hashed at each use
        path.chmod(_READ_ONLY)
        os.utime(path, ns=(_SEALED, _SEALED))


@contextlib.contextmanager
def locked(path: Path, how: int, *, remove: bool = False) -> Iterator[None]:
    """Hold a lock on a file until the block ends; ``how`` is an argument of `fcntl.flock`.

    With ``remove`` the file is removed at the end. Raises OSError, which is BlockingIOError for a lock of LOCK_NB that
    another process holds.
    """
    check_links(path)
    handle = _lock(path, how)
    try:
        yield
    finally:
        if remove:
            path.unlink(missing_ok=True)
        os.close(handle)


def _lock(path: Path, how: int) -> int:
    """Open and lock a file. If it, or its folder, was removed while this process waited for it, lock the new one."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, how)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.lstat()):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
