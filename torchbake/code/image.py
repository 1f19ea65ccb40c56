"""An image with one more layer of code: its manifest and its config. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchbake.code.layer import LayerCompression
from torchbake.errors import UsageError
from torchbake.oci.labels import BASE_DIGEST, BASE_NAME, CODE
from torchbake.oci.layer_order import Layer, json_bytes, manifest_of
from torchbake.oci.manifest import DOCKER, Manifest, UnsoundError, sha256
from torchbake.oci.reference import Reference

# Engines take 127 layers: https://docs.docker.com/engine/storage/drivers/overlayfs-driver/. A few are left for a
# Dockerfile that is FROM the image with code.
MOST_LAYERS = 120
_PLATFORM = ("architecture", "os", "variant")
_DOCKER_GZIP = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def with_layer(
    manifest: Manifest, config: Mapping[str, Any], layer: Layer, *, labels: Mapping[str, str]
) -> tuple[Manifest, bytes]:
    """Put a layer of code on an image, and return its new manifest and config.

    ``labels`` are added to the config, and those of the OCI specification also to the manifest's annotations. The
    config's times stay, so the same layer on the same image is the same image. Raises UsageError if the image has too
    many layers, or code already, and UnsoundError for a malformed config.
    """
    if len(manifest.layers) >= MOST_LAYERS:
        raise UsageError(
            f"The image has {len(manifest.layers)} layers, and with code it may have {MOST_LAYERS}: engines take 127.",
            hint="Build it with fewer layers: put several RUN and COPY steps of its Dockerfile into one.",
        )
    data = json_bytes(_config_with(config, layer, labels))
    content = {
        **manifest.content,
        "config": {**manifest.content["config"], "digest": sha256(data), "size": len(data)},
        "layers": [*manifest.content["layers"], _fitting(layer, manifest).blob.descriptor],
    }
    if manifest.media_type != DOCKER:  # Docker's own format has no annotations
        own = {key: value for key, value in labels.items() if key in (BASE_NAME, BASE_DIGEST)}
        content["annotations"] = {**(manifest.content.get("annotations") or {}), **own}
    return Manifest(data=json_bytes(content), media_type=manifest.media_type), data


def code_alone(config: Mapping[str, Any], layer: Layer, at: str) -> tuple[Manifest, bytes]:
    """Return the manifest and the config of an image with a layer of code and no other layer.

    ``config`` is that of the image below, whose platform the result has. On all images of a platform the same layer
    gives the same result.
    """
    platform = {key: config[key] for key in _PLATFORM if key in config}
    rootfs = {"type": "layers", "diff_ids": [layer.diff_id]}
    data = json_bytes({**platform, "config": {"Labels": {CODE: at}}, "rootfs": rootfs})
    return manifest_of(data, [layer]), data


def labels_of(base: Reference, at: str) -> dict[str, str]:
    """Return the labels of an image with code in the folder ``at``, which name the image below by its digest."""
    return {BASE_NAME: str(replace(base, tag="")), BASE_DIGEST: base.digest, CODE: at}


def refuse_code_on_code(labels: Mapping[str, str], at: str) -> None:
    """Raise UsageError if an image with these labels has code in the folder ``at`` already."""
    if labels.get(CODE) == at:
        raise UsageError(
            f"The image has code in {at} already, and files that are gone since would stay in it.",
            hint=f"Name the image below: {labels.get(BASE_NAME, 'its label base.name')}",
        )


def compression_for(manifest: Manifest) -> LayerCompression:
    """Return the compression of a further layer: zstd if layers have it, and so all readers of the image; else gzip."""
    zstd = any(layer.media_type.endswith("zstd") for layer in manifest.layers)
    return "zstd" if zstd and manifest.media_type != DOCKER else "gzip"


def _fitting(layer: Layer, manifest: Manifest) -> Layer:
    if manifest.media_type != DOCKER:
        return layer
    return replace(layer, blob=replace(layer.blob, media_type=_DOCKER_GZIP))


def _config_with(config: Mapping[str, Any], layer: Layer, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the config with the layer. Raises UsageError for code on code, UnsoundError for a malformed config."""
    at = labels.get(CODE, "")
    try:
        own = config.get("config") or {}
        old_labels = own.get("Labels") or {}
        time = {"created": config["created"]} if "created" in config else {}
        step = {**time, "created_by": f"torchbake code push --at {at}", "comment": "a folder of code"}
        rootfs = {**config["rootfs"], "diff_ids": [*config["rootfs"]["diff_ids"], layer.diff_id]}
        # Engines refuse a history that does not have a step for each layer; an image without history needs none.
        history = [*config["history"], step] if config.get("history") else []
        refuse_code_on_code(old_labels, at)
        labelled = {**own, "Labels": {**old_labels, **labels}}
    except (LookupError, TypeError, AttributeError):
        raise UnsoundError("The image's config does not list its layers.") from None
    return {**config, "config": labelled, "rootfs": rootfs, **({"history": history} if history else {})}
