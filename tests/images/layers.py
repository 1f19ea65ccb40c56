"""The layers of an image, read from `docker save`: every file, also the hidden ones.

The list of a layer's files is cached in a folder by the layer's diff id, so a layer of several images is read once.
Layers are recognised by their content, because the two image stores save them differently. The containerd store has
compressed blobs of an OCI layout, the older store has plain tar files.
"""

import contextlib
import gzip
import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

import docker
import zstandard

from tests.images import leaks
from tests.images.entries import WHITEOUT, Entry, Kind, entries_of
from torchbake.engine import podman
from torchbake.engine.client import Engine

_BLOCK = 1 << 20
_KINDS: dict[bytes, Kind] = {
    tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.LNKTYPE: "file", tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "link",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: its diff id, the digests of the blobs that hold it, its entries, and (check, path) of findings."""

    diff_id: str
    blobs: tuple[str, ...]
    entries: tuple[Entry, ...]
    findings: tuple[tuple[str, str], ...]


class LayersError(Exception):
    """The engine did not give every layer."""


def read_layers(client: docker.DockerClient, image_id: str, diff_ids: Sequence[str], folder: Path) -> list[Layer]:
    """Return the layers of an image, lowest first; read the layers that the cache ``folder`` lacks from the engine."""
    layers = {diff_id: layer for diff_id in diff_ids if (layer := _recall(folder, diff_id))}
    missing = set(diff_ids) - layers.keys()
    if missing:
        skip = {blob for layer in layers.values() for blob in layer.blobs}
        for layer in _stream(client, image_id, missing, skip):
            layers[layer.diff_id] = layer
            _remember(folder, layer)
    return [layers[diff_id] for diff_id in diff_ids]


def _stream(client: docker.DockerClient, image_id: str, missing: set[str], skip: set[str]) -> Iterator[Layer]:
    """Read what is missing, and no further than that."""
    waiting = set(missing)
    with contextlib.closing(_saved(client, image_id, skip)) as blobs:
        for blob, file in blobs:
            layer = _layer(file, blob)
            if layer and layer.diff_id in waiting:
                waiting.remove(layer.diff_id)
                yield layer
            if not waiting:
                return
    raise LayersError(f"the engine gives no layer {sorted(waiting)[0]}")


def _saved(client: docker.DockerClient, image_id: str, skip: set[str]) -> Generator[tuple[str, IO[bytes]], None, None]:
    """The files that `docker save` writes, of which layers are some, with the digests that their names say."""
    with (
        _chunks(client, image_id) as chunks,
        _Stream(chunks) as stream,
        tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive,
    ):
        for member in archive:
            blob = "sha256:" + Path(member.name).name
            if member.isfile() and blob not in skip:
                yield blob, cast(IO[bytes], archive.extractfile(member))


@contextlib.contextmanager
def _chunks(client: docker.DockerClient, image_id: str) -> Iterator[Iterable[bytes]]:
    """An image's archive. Podman 4.3 refuses one whose layers are zstd's, unless it is asked by its own API."""
    if Engine(client).podman:
        with podman.save(image_id) as chunks:
            yield chunks
    else:
        yield client.api.get_image(image_id, chunk_size=_BLOCK)


def _layer(blob: IO[bytes], name: str) -> Layer | None:
    """Read a blob as a layer; return None if it is not a layer."""
    buffered = cast(io.BufferedReader, blob)  # as are files, and members of an archive
    head = buffered.peek(512)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        plain: Any = zstandard.ZstdDecompressor().stream_reader(buffered, read_size=_BLOCK, read_across_frames=True)
    elif head.startswith(b"\x1f\x8b"):
        plain = gzip.GzipFile(fileobj=buffered)
    elif head[257:262] == b"ustar" or (len(head) >= 512 and not any(head[:512])):
        plain = buffered
    else:
        return None
    hashing = _Hashing(plain)
    with tarfile.open(fileobj=hashing, mode="r|", bufsize=_BLOCK) as archive:  # type: ignore[call-overload]
        read, hashes = list[tuple[Entry, list[str]]](), dict[str, str]()
        for member in archive:
            read.append(_entry(archive, member, hashes))
    while hashing.read(_BLOCK):  # what stands behind the end of the archive counts for its digest
        pass
    findings = sorted({(name, entry.path) for entry, names in read for name in names})
    return Layer(
        diff_id=f"sha256:{hashing.digest.hexdigest()}",
        blobs=(name,),
        entries=tuple(entry for entry, _ in read),
        findings=tuple(findings),
    )


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo, hashes: dict[str, str]) -> tuple[Entry, list[str]]:
    """An entry, and the checks that it fails. ``hashes`` has the files before it, since a hard link names one."""
    path = _path(member.name)
    deletion = Path(path).name.startswith(WHITEOUT)
    names = [] if member.isdir() or deletion else list(leaks.of_path(path))
    hashes.pop(path, None)
    if member.isreg():
        content = cast(IO[bytes], archive.extractfile(member))
        if 0 < member.size <= leaks.BIGGEST:
            data = content.read()
            names += leaks.of_content(path, data)
            content = io.BytesIO(data)
        hashes[path] = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
    elif member.islnk() and (linked := hashes.get(_path(member.linkname))):
        hashes[path] = linked
    entry = Entry(
        path=path,
        kind=_KINDS.get(member.type, "other"),
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        size=member.size if member.isreg() else 0,
        target=member.linkname if member.issym() else "",
        capable="SCHILY.xattr.security.capability" in member.pax_headers,
        sha256=hashes.get(path, ""),
    )
    return entry, names


def _path(name: str) -> str:
    return "/" + name.removeprefix("./").strip("/")


class _Stream(io.RawIOBase):
    """Chunks as a file to read. Closing it ends the transfer."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._rest = iter(chunks), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def close(self) -> None:
        closing = getattr(self._chunks, "close", None)
        if closing:
            closing()
        super().close()


class _Hashing:
    """A reader that computes the digest of the bytes that it returned."""

    def __init__(self, source: Any) -> None:
        self._source, self.digest = source, hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = cast(bytes, self._source.read(size))
        self.digest.update(data)
        return data


@cache
def _scanner() -> str:
    """Return the digest of the rules for layers: cached results of other rules are not used."""
    total = hashlib.sha256()
    for name in ("layers.py", "leaks.py", "entries.py", "published_keys.toml"):
        total.update(Path(__file__).with_name(name).read_bytes())
    return total.hexdigest()[:16]


def _place(folder: Path, diff_id: str) -> Path:
    return folder / _scanner() / f"{diff_id.removeprefix('sha256:')}.json"


def _recall(folder: Path, diff_id: str) -> Layer | None:
    try:
        record = json.loads(_place(folder, diff_id).read_bytes())
        return Layer(
            diff_id=record["diff_id"],
            blobs=tuple(record["blobs"]),
            entries=entries_of(record["entries"]),
            findings=tuple((name, path) for name, path in record["findings"]),
        )
    except (OSError, ValueError, LookupError, TypeError):  # none, or half of one: it is read again
        return None


def _remember(folder: Path, layer: Layer) -> None:
    place = _place(folder, layer.diff_id)
    place.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "diff_id": layer.diff_id,
        "blobs": layer.blobs,
        "findings": layer.findings,
        "entries": [[getattr(entry, name) for name in Entry.__slots__] for entry in layer.entries],
    }
    with tempfile.NamedTemporaryFile("w", dir=place.parent, suffix=".part", delete=False) as file:
        json.dump(record, file)
    Path(file.name).replace(place)
