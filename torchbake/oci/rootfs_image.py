"""A root file system as an OCI image layout: the form in which a base is handed to any builder."""

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from torchbake.core.json_text import read_json
from torchbake.errors import BaseError

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+"


def write_layout(rootfs: Path, folder: Path, *, created: str, created_by: str) -> str:
    """Write ``folder`` as a layout of one image with one layer; returns its manifest's digest.

    ``created`` is RFC 3339. Raises BaseError when the archive cannot be compressed.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as beside:
        layout = Path(beside, "layout")
        (layout / "blobs/sha256").mkdir(parents=True)
        digest = _write_blobs(layout, rootfs, created, created_by)
        shutil.rmtree(folder, ignore_errors=True)
        layout.rename(folder)
    return digest


def layout_digest(folder: Path) -> str | None:
    """The manifest's digest of a layout; None when there is none."""
    try:
        index = read_json((folder / "index.json").read_bytes())
        return str(index["manifests"][0]["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _write_blobs(layout: Path, rootfs: Path, created: str, created_by: str) -> str:
    kind, compressed = _compress(rootfs, layout / "blobs/layer")
    layer = _adopt(layout, compressed, _LAYER + kind)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": ["bash"],
        },
        "rootfs": {"type": "layers", "diff_ids": [_sha256(rootfs)]},
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


def _compress(source: Path, target: Path) -> tuple[str, Path]:
    """zstd where the host has it (3 times as fast as gzip, and smaller), else gzip."""
    kind = "zstd" if shutil.which("zstd") else "gzip"
    command = ["zstd", "-q", "-3", "-c"] if kind == "zstd" else ["gzip", "-n", "-6", "-c"]
    with target.open("wb") as output:
        done = subprocess.run([*command, str(source)], stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BaseError(f"{source}: {kind} failed: {done.stderr.strip()}", hint="Is the disk full?")
    return kind, target


def _put(layout: Path, value: Any, media_type: str) -> dict[str, Any]:
    path = layout / "blobs/value"
    path.write_text(json.dumps(value, sort_keys=True, separators=(",", ":")))
    return _adopt(layout, path, media_type)


def _adopt(layout: Path, path: Path, media_type: str) -> dict[str, Any]:
    digest = _sha256(path)
    blob = path.rename(layout / "blobs/sha256" / digest.removeprefix("sha256:"))
    return {"mediaType": media_type, "digest": digest, "size": blob.stat().st_size}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
