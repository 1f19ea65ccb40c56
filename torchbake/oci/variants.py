"""The images of one tag: one image in several compressions, or of several platforms, and their index. Pure.

A client takes the first image of its platform in an index. So gzip comes first, which every client can read. Podman,
skopeo and CRI-O prefer the image whose descriptor has the annotation of zstd.
Source: https://github.com/containers/image/pull/1789
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from torchbake.oci.layer_order import json_bytes
from torchbake.oci.manifest import INDEX, Manifest

CompressionName: TypeAlias = Literal["zstd", "gzip", "both"]
ZSTD = "io.github.containers.compression.zstd"  # the annotation
_PLATFORM = ("architecture", "os", "variant")


def index_of(gzip: Manifest, zstd: Manifest, config: Mapping[str, Any]) -> Manifest:
    """Return the index of an image in both compressions. ``config`` is the image's, which names its platform."""
    entries = [entry_of(each, config) for each in (gzip, zstd)]
    entries[1]["annotations"] = {ZSTD: "true"}
    return joined_index([entries])


def entry_of(image: Manifest, config: Mapping[str, Any]) -> dict[str, Any]:
    """Describe an image in an index, with the platform of its configuration."""
    return {**image.own.descriptor, "platform": {key: config[key] for key in _PLATFORM if key in config}}


def joined_index(platforms: Iterable[Sequence[Mapping[str, Any]]]) -> Manifest:
    """Return the index of the images of several platforms. The images of a platform keep their order."""
    entries = [dict(entry) for platform in platforms for entry in platform]
    content = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    return Manifest(data=json_bytes(content), media_type=INDEX)


def compression_of(images: Iterable[Manifest]) -> str:
    """Name the compressions of the layers of an image's variants: ``gzip and zstd``. Other layers have none."""
    types = [layer.media_type for image in images for layer in image.layers]
    kinds = [kind for kind in ("gzip", "zstd") if any(each.endswith(kind) for each in types)]
    return " and ".join(kinds) or "no compression"
