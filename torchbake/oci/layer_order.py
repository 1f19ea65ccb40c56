"""Layers, and manifests and configs of images that have them. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from torchbake.core.json_text import read_object
from torchbake.oci.manifest import CONFIG, MANIFEST, Blob, Manifest, UnsoundError, sha256


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer as a manifest describes it. ``diff_id`` is the digest of its uncompressed archive."""

    blob: Blob
    diff_id: str


Made: TypeAlias = tuple[str, Layer]  # with the command that made it


def with_layers_below(manifest: Manifest, config: bytes, layers: Sequence[Made]) -> tuple[Manifest, bytes]:
    """Put layers below those of an image: its new manifest and config. Each layer has the command that made it.

    Layers that share no path give the same files in any order. Raises UnsoundError for a config that is none.
    """
    told = _read(config)
    try:
        steps = [{"created_by": command} | _time(told) for command, _ in layers]
        told["history"] = [*steps, *told.get("history", ())]
        diff_ids = [*(layer.diff_id for _, layer in layers), *told["rootfs"]["diff_ids"]]
        told["rootfs"] = {**told["rootfs"], "diff_ids": diff_ids}
    except (LookupError, TypeError):
        raise UnsoundError("An image's config does not tell what its layers are.") from None
    data = json_bytes(told)
    content = {
        **manifest.content,
        "config": {**manifest.content["config"], "digest": sha256(data), "size": len(data)},
        "layers": [blob.descriptor for blob in (*(layer.blob for _, layer in layers), *manifest.layers)],
    }
    return Manifest(data=json_bytes(content), media_type=manifest.media_type), data


def _time(config: Mapping[str, Any]) -> dict[str, Any]:
    """The time of an image, as an entry of its history has it."""
    return {"created": config["created"]} if "created" in config else {}


def image_of(layers: Sequence[Made]) -> tuple[Manifest, bytes]:
    """The manifest and the config of an image of these layers, each with the command that made it, the lowest first."""
    config = json_bytes(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for _, layer in layers]},
            "history": [{"created_by": command} for command, _ in layers],
        }
    )
    return manifest_of(config, [layer for _, layer in layers]), config


def manifest_of(config: bytes, layers: Iterable[Layer]) -> Manifest:
    """The manifest of an image with this config and these layers."""
    described = Blob(digest=sha256(config), size=len(config), media_type=CONFIG)
    content = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described.descriptor,
        "layers": [layer.blob.descriptor for layer in layers],
    }
    return Manifest(data=json_bytes(content), media_type=MANIFEST)


def chain_ids(diff_ids: Iterable[str]) -> tuple[str, ...]:
    """What names each of these layers together with those below it, the lowest first.

    Source: https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid
    """
    return tuple(accumulate(diff_ids, lambda below, diff_id: sha256(f"{below} {diff_id}".encode())))


def _read(config: bytes) -> dict[str, Any]:
    try:
        return read_object(config)
    except ValueError as error:
        raise UnsoundError(f"An image's config cannot be read: {error}.") from None


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """A config or a manifest as its digest is of: without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
