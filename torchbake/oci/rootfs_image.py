"""A root file system as an OCI image layout, which every builder takes as a base."""

import json
import tarfile
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from torchbake.core.digest import file_digest
from torchbake.core.json_text import read_json
from torchbake.errors import BaseError
from torchbake.oci.layer_archive import MEDIA_TYPE, Member, write_layer

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"


def write_layout(rootfs: Path, folder: Path, *, created: str, created_by: str) -> str:
    """Write ``folder`` as a layout of one image with one layer, and return the digest of its manifest.

    The same files have the same digest, whichever tar wrote the archive. A complete layout of that digest stays as it
    is, because a build may be reading it. ``created`` is RFC 3339. Raises BaseError if the archive cannot be read.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        layout = Path(scratch, "layout")
        (layout / "blobs/sha256").mkdir(parents=True)
        digest = _write_blobs(layout, rootfs, created, created_by)
        if _files(folder) != _files(layout):
            if folder.exists():
                folder.rename(Path(scratch, "before"))
            layout.rename(folder)
    return digest


def _files(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a layout. A damaged blob still has its name and its size."""
    return {str(path.relative_to(folder)): file_digest(path) for path in folder.rglob("*") if path.is_file()}


def layout_digest(folder: Path) -> str | None:
    """Return the digest of a layout's manifest; None if there is no layout."""
    try:
        index = read_json((folder / "index.json").read_bytes())
        return str(index["manifests"][0]["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _write_blobs(layout: Path, rootfs: Path, created: str, created_by: str) -> str:
    content = _pack(rootfs, layout / "blobs/layer")
    layer = _adopt(layout, layout / "blobs/layer", MEDIA_TYPE)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": ["bash"],
        },
        "rootfs": {"type": "layers", "diff_ids": [content]},
        "history": [{"created": created, "created_by": created_by}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _put(layout, config, _CONFIG),
        "layers": [layer],
    }
    described = _put(layout, manifest, _MANIFEST)
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    return str(described["digest"])


def _pack(rootfs: Path, target: Path) -> str:
    """Write the archive again with torchbake's own headers, compressed by zstd, and return its diff ID.

    tar 1.34 and 1.35, of Debian 12 and 13, write different headers for the same files.
    """
    try:
        with tarfile.open(rootfs, encoding="utf-8") as source:
            return write_layer(target, _members(source), threads=0).diff_id
    except tarfile.TarError as error:
        raise BaseError(f"{rootfs}: not a root file system: {error}", hint="Is the disk full?") from None


def _members(source: tarfile.TarFile) -> Iterator[Member]:
    for member in source:
        yield member, partial(_opened, source, member) if member.isreg() else None


def _opened(source: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    return cast(IO[bytes], source.extractfile(member))


def _put(layout: Path, value: Any, media_type: str) -> dict[str, Any]:
    path = layout / "blobs/value"
    path.write_text(json.dumps(value, sort_keys=True, separators=(",", ":")))
    return _adopt(layout, path, media_type)


def _adopt(layout: Path, path: Path, media_type: str) -> dict[str, Any]:
    digest = file_digest(path)
    blob = path.rename(layout / "blobs/sha256" / digest.removeprefix("sha256:"))
    return {"mediaType": media_type, "digest": digest, "size": blob.stat().st_size}
