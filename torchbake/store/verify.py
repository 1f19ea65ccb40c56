"""Hash every blob of a store, name damaged blobs, and remove them."""

import contextlib
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchbake.core.digest import file_digest
from torchbake.errors import StorageError
from torchbake.store.blobs import Blobs, StoreEntry


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A blob that is damaged or missing, with the layers and images that need it."""

    digest: str
    file: str
    what: Literal["damaged", "missing"]
    needed_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class VerifyResult:
    """The number and size of the files that `verify` hashed, each once, and the damages."""

    blobs: int
    bytes: int
    damages: tuple[Damage, ...]


def verify(stores: Sequence[Blobs], look: Callable[[Path], None]) -> VerifyResult:
    """Hash all blobs. ``look`` is called with each file before it is hashed."""
    sound: dict[tuple[int, int], str | None] = {}  # digests by inode: stores have files in common
    damages, size = list[Damage](), 0
    for store in stores:
        with store.in_use() if store.folder.is_dir() else contextlib.nullcontext():
            entries = store.entries()
            for path in store.files():
                with contextlib.suppress(FileNotFoundError):  # replaced by a build
                    status = path.stat()
                    inode = (status.st_dev, status.st_ino)
                    if inode not in sound:
                        look(path)
                        sound[inode] = _digest(path)
                        size += status.st_size
                    if sound[inode] != f"sha256:{path.name}":
                        damages.append(_damage(entries, path, "damaged"))
            paths = {blob.digest: store.path(blob.digest) for entry in entries for blob in entry.blobs}
            damages += [_damage(entries, path, "missing") for path in paths.values() if not path.exists()]
    return VerifyResult(blobs=len(sound), bytes=size, damages=tuple(damages))


def remove_damaged(stores: Sequence[Blobs]) -> None:
    """Remove damaged blobs, and what lacks a blob from the indexes, so that builds make it again.

    Raises StorageError if a build uses a store, and OSError if it cannot be written.
    """
    for store in stores:
        if not store.folder.is_dir():
            continue
        try:
            with store.alone():
                for path in store.files():
                    if _digest(path) != f"sha256:{path.name}":
                        path.unlink()
                store.drop_incomplete()
        except BlockingIOError:
            raise StorageError(
                f"{store.folder}: a build uses it.", hint="Run again when the build has ended."
            ) from None


def _damage(entries: Sequence[StoreEntry], path: Path, what: Literal["damaged", "missing"]) -> Damage:
    digest = f"sha256:{path.name}"
    users = {entry.name or entry.key for entry in entries if any(one.digest == digest for one in entry.blobs)}
    return Damage(digest=digest, file=str(path), what=what, needed_by=tuple(sorted(users)))


def _digest(path: Path) -> str | None:
    """Return a file's digest; None if its disk cannot read it."""
    try:
        return file_digest(path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None
