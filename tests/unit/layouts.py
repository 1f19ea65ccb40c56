"""Small images in image layouts, as BuildKit exports them."""

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from torchbake.store.layout import Layout

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "zstd": zstandard.compress,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "tar": bytes,
}

Entry = tuple[tarfile.TarInfo, bytes]


def file(name: str, data: bytes = b"", **changes: Any) -> Entry:
    """A file of a layer; ``changes`` are fields of its header."""
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(data), 1735689600
    for key, value in changes.items():
        setattr(info, key, value)
    return info, data


def archive(*entries: Entry) -> bytes:
    """A layer's tar archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as packed:
        for info, data in entries:
            packed.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def put(
    layout: Layout,
    *layers: bytes,
    packing: str | Sequence[str] = "zstd",
    config: Mapping[str, Any] | None = None,
    pack: Callable[[bytes], bytes] | None = None,
) -> str:
    """Write an image of these layers' archives, packed all alike or each in its way; its manifest's digest."""
    packings = [packing] * len(layers) if isinstance(packing, str) else packing
    steps = [{"created_by": f"step {number}"} for number, _ in enumerate(layers, start=1)]
    lines: dict[str, Any] = {"history": steps, **(config or {})}
    lines["rootfs"] = {"diff_ids": [sha256(layer) for layer in layers]}
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _blob(layout, json.dumps(lines).encode(), _CONFIG),
        "layers": [
            _blob(layout, (pack or PACKERS[kind])(layer), f"{_LAYER}+{kind}".removesuffix("+tar"))
            for layer, kind in zip(layers, packings, strict=True)
        ],
    }
    return str(_blob(layout, json.dumps(manifest).encode(), _MANIFEST)["digest"])


def blobs_of(layout: Layout, digest: str) -> Sequence[Path]:
    """The files of an image but its manifest: its layers, then its config."""
    manifest = json.loads(layout.path(digest).read_text())
    return [layout.path(blob["digest"]) for blob in (*manifest["layers"], manifest["config"])]


def damage(path: Path, *, is_seen: bool = True) -> None:
    """Flip a bit of a blob; if the change is not ``is_seen``, as a failing disk does, which leaves the file's times."""
    data, before = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    if not is_seen:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def saved(config: bytes, *layers: bytes) -> bytes:
    """Write a classic store's image as `docker save` of Docker 25 and later, layers before their list."""
    blobs = {f"blobs/sha256/{sha256(data).removeprefix('sha256:')}": data for data in (*layers, config)}
    *names, name = (f"blobs/sha256/{sha256(data).removeprefix('sha256:')}" for data in (*layers, config))
    text = json.dumps([{"Config": name, "RepoTags": None, "Layers": names}]).encode()
    return archive(*(file(*blob) for blob in blobs.items()), file("index.json", b"{}"), file("manifest.json", text))


def saved_before_docker_25(config: bytes, *layers: bytes) -> bytes:
    """Write the same as earlier versions: layers have other names, and a layer that is there twice is a link."""
    entries, names = list[Entry](), list[str]()
    for number, layer in enumerate(layers):
        name = f"{number:064x}/layer.tar"
        if layer in layers[:number]:
            target = f"../{names[layers.index(layer)]}"
            entries.append(file(name, b"", type=tarfile.SYMTYPE, linkname=target))
        else:
            entries.append(file(name, layer))
        entries += [file(f"{number:064x}/VERSION", b"1.0"), file(f"{number:064x}/json", b"{}")]
        names.append(name)
    name = f"{sha256(config).removeprefix('sha256:')}.json"
    text = json.dumps([{"Config": name, "RepoTags": ["acme/pytorch:x"], "Layers": names}]).encode()
    return archive(*entries, file(name, config), file("manifest.json", text))


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _blob(layout: Layout, data: bytes, media_type: str) -> dict[str, Any]:
    layout.blobs.mkdir(parents=True, exist_ok=True)
    layout.path(sha256(data)).write_bytes(data)
    return {"mediaType": media_type, "digest": sha256(data), "size": len(data)}
