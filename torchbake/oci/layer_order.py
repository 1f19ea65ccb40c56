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


CommandLayer: TypeAlias = tuple[str, Layer]  # with the command that made it


def with_layers_below(manifest: Manifest, config: bytes, layers: Sequence[CommandLayer]) -> tuple[Manifest, bytes]:
    """Put layers below those of an image, and return its new manifest and config.

    Layers that share no path give the same files in any order. Raises UnsoundError for a malformed config.
    """
    try:
        image = read_object(config)
        time = {"created": image["created"]} if "created" in image else {}
        steps = [{"created_by": command} | time for command, _ in layers]
        image["history"] = [*steps, *image.get("history", ())]
        diff_ids = [*(layer.diff_id for _, layer in layers), *image["rootfs"]["diff_ids"]]
        image["rootfs"] = {**image["rootfs"], "diff_ids": diff_ids}
    except ValueError as error:
        raise UnsoundError(f"An image's config cannot be read: {error}.") from None
    except (LookupError, TypeError):
        raise UnsoundError("An image's config does not list its layers.") from None
    data = json_bytes(image)
    content = {
        **manifest.content,
        "config": {**manifest.content["config"], "digest": sha256(data), "size": len(data)},
        "layers": [blob.descriptor for blob in (*(layer.blob for _, layer in layers), *manifest.layers)],
    }
    return Manifest(data=json_bytes(content), media_type=manifest.media_type), data


def image_of(layers: Sequence[CommandLayer], architecture: str = "amd64") -> tuple[Manifest, bytes]:
    """Return the manifest and the config of an image of these layers, the lowest first."""
    config = json_bytes(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for _, layer in layers]},
            "history": [{"created_by": command} for command, _ in layers],
        }
    )
    return manifest_of(config, [layer for _, layer in layers]), config


def manifest_of(config: bytes, layers: Iterable[Layer]) -> Manifest:
    """Return the manifest of an image with this config and these layers."""
    blob = Blob(digest=sha256(config), size=len(config), media_type=CONFIG)
    content = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob.descriptor,
        "layers": [layer.blob.descriptor for layer in layers],
    }
    return Manifest(data=json_bytes(content), media_type=MANIFEST)


def chain_ids(diff_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the chain ID of each layer: the digest of it and of all layers below it. The lowest layer comes first.

    Source: https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid
    """
    return tuple(accumulate(diff_ids, lambda below, diff_id: sha256(f"{below} {diff_id}".encode())))


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Serialize a config or a manifest without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
