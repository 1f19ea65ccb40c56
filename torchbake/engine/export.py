"""An image's compressed content: the bytes that were built and tested, and no others."""

import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from torchbake.engine.capability import CONTAINERD_STORE
from torchbake.engine.client import Engine, answering
from torchbake.errors import EngineError
from torchbake.oci.manifest import INDEX, MANIFEST, Blob, Manifest
from torchbake.store.layout import Layout

_BLOBS = "blobs/sha256/"
_SMALL = 4 * 2**20  # bytes; manifests and configs are smaller, and are always taken


class _Stream:
    """The chunks of an answer as a file that can only be read on."""

    def __init__(self, chunks: Any) -> None:
        self._chunks, self._rest = iter(chunks), b""

    def read(self, size: int = -1) -> bytes:
        pieces, length = [self._rest], len(self._rest)
        while size < 0 or length < size:
            piece = next(self._chunks, b"")
            if not piece:
                break
            pieces.append(piece)
            length += len(piece)
        whole = b"".join(pieces)
        size = len(whole) if size < 0 else size
        self._rest = whole[size:]
        return whole[:size]


@dataclass(frozen=True, kw_only=True)
class Content:
    """An image as files by digest in ``folder``; a layer that nobody wanted is not among them."""

    manifest: Manifest
    folder: Path

    def path(self, blob: Blob) -> Path:
        return self.folder / blob.digest.removeprefix("sha256:")


class Source(Protocol):
    """Where images come from."""

    def take_out(self, digest: str, folder: Path, wanted: Callable[[str], bool]) -> Content:
        """Read an image once, and keep what is small and the layers whose digest is ``wanted``."""


@dataclass(frozen=True, kw_only=True)
class LayoutSource:
    """The images of a layout, read where they are; other images come from ``otherwise``."""

    layout: Layout
    otherwise: Source

    def take_out(self, digest: str, folder: Path, wanted: Callable[[str], bool]) -> Content:
        manifest = self.layout.find(digest)
        if manifest:
            return Content(manifest=manifest, folder=self.layout.blobs)
        return self.otherwise.take_out(digest, folder, wanted)


@dataclass(frozen=True, kw_only=True)
class EngineSource:
    """The images of an engine.

    It compressed their layers when they were built; they are taken as they are, so that digests stay. Raises
    EngineError where the engine keeps no compressed layers.
    """

    engine: Engine

    def take_out(self, digest: str, folder: Path, wanted: Callable[[str], bool]) -> Content:
        """Read all that `docker save` writes, which is the whole image."""
        if not self.engine.containerd_store:
            raise EngineError(
                "This engine keeps no compressed layers: it would push another image than the one that was tested.",
                hint=f"{CONTAINERD_STORE} in its daemon.json, and restart it.",
            )
        folder.mkdir(parents=True, exist_ok=True)
        with answering():
            stream: Any = _Stream(self.engine.client.api.get_image(digest, chunk_size=2**20))
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    _take(archive, member, folder, wanted)
        path = folder / digest.removeprefix("sha256:")
        if not path.exists():
            raise EngineError(f"The engine did not hand out {digest}.")
        data = path.read_bytes()
        media_type = Manifest(data=data, media_type=MANIFEST).content.get("mediaType", MANIFEST)
        if media_type == INDEX:
            raise EngineError(f"{digest} is an index of several images.", hint="Build it again: nox -s build")
        return Content(manifest=Manifest(data=data, media_type=media_type), folder=folder)


def config_digest(engine: Engine, layout: Layout, digest: str) -> str:
    """Return the digest of an image's config, which is the same however its layers are compressed. Raises EngineError.

    The containerd store does not report it: an image that is not in a layout is read as a whole.
    """
    if not engine.containerd_store:
        return digest
    source = LayoutSource(layout=layout, otherwise=EngineSource(engine=engine))
    with tempfile.TemporaryDirectory(prefix="torchbake-config-") as folder:
        return source.take_out(digest, Path(folder), lambda _: False).manifest.config.digest


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, wanted: Callable[[str], bool]) -> None:
    name = member.name.removeprefix(_BLOBS)
    if not member.isfile() or name == member.name or not name.isalnum():
        return
    target = folder / name
    if target.exists() or (member.size > _SMALL and not wanted(f"sha256:{name}")):
        return
    source: IO[bytes] | None = archive.extractfile(member)
    assert source
    temporary = target.with_suffix(".part")
    with temporary.open("wb") as file:
        while piece := source.read(2**20):
            file.write(piece)
    temporary.rename(target)
