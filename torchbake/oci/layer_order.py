"""An image whose layers stand in another order, or have others in their place: its manifest and config, anew. Pure.

Layers that share no path give the same files in any order. Engines unpack a layer once for each list of layers below
it, so what images have in common is unpacked once where it stands lowest.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from torchbake.core.json_text import read_object
from torchbake.oci.manifest import MANIFEST, Blob, Manifest, UnsoundError, sha256

_CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer as a manifest describes it. ``diff_id`` is the digest of its uncompressed archive."""

    blob: Blob
    diff_id: str


Made: TypeAlias = tuple[str, Layer]  # with the command that made it


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A layer with the entry of the history that made it."""

    layer: Layer
    history: Mapping[str, Any]

    @property
    def command(self) -> str:
        return str(self.history.get("created_by", ""))


def ordered(
    manifest: Manifest, config: bytes, rank: Callable[[str], int | None], instead: Mapping[str, Sequence[Made]]
) -> tuple[Manifest, bytes]:
    """The manifest and the config of the same image with its layers in another order.

    ``rank`` is asked for each layer by the command that made it: layers with a rank come first, by rank and then as
    they stand; the others follow as they stand. ``instead`` are layers that take the place of one with a rank, by its
    command. Raises RegistryError for a config that does not tell what made each layer.
    """
    told = _read(config)
    steps = _steps(manifest, told)
    ranks = {number: place for number, step in enumerate(steps) if (place := rank(step.command)) is not None}
    lower = [steps[number] for number in sorted(ranks, key=lambda number: (ranks[number], number))]
    upper = [step for number, step in enumerate(steps) if number not in ranks]
    above = [entry for entry in told["history"] if not any(entry is step.history for step in lower)]
    below = [one for step in lower for one in _instead(step, instead.get(step.command))]
    order = [*below, *upper]
    told["history"] = [*(step.history for step in below), *above]
    told["rootfs"] = {**told["rootfs"], "diff_ids": [step.layer.diff_id for step in order]}
    data = _written(told)
    content = {
        **manifest.content,
        "config": {**manifest.content["config"], "digest": sha256(data), "size": len(data)},
        "layers": [_descriptor(step.layer.blob) for step in order],
    }
    return Manifest(data=_written(content), media_type=manifest.media_type), data


def _instead(step: _Step, made: Sequence[Made] | None) -> list[_Step]:
    if made is None:
        return [step]
    return [_Step(layer=layer, history={**step.history, "created_by": command}) for command, layer in made]


def image_of(layers: Sequence[Made]) -> tuple[Manifest, bytes]:
    """The manifest and the config of an image of these layers, each with the command that made it, the lowest first."""
    config = _written(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for _, layer in layers]},
            "history": [{"created_by": command} for command, _ in layers],
        }
    )
    described = Blob(digest=sha256(config), size=len(config), media_type=_CONFIG)
    content = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _descriptor(described),
        "layers": [_descriptor(layer.blob) for _, layer in layers],
    }
    return Manifest(data=_written(content), media_type=MANIFEST), config


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


def _steps(manifest: Manifest, config: Mapping[str, Any]) -> list[_Step]:
    try:
        made = [entry for entry in config["history"] if not entry.get("empty_layer")]
        layers = zip(manifest.layers, config["rootfs"]["diff_ids"], made, strict=True)
        return [_Step(layer=Layer(blob=blob, diff_id=str(diff_id)), history=entry) for blob, diff_id, entry in layers]
    except (LookupError, TypeError, AttributeError, ValueError):
        raise UnsoundError("An image's config does not tell what made each of its layers.") from None


def _descriptor(blob: Blob) -> dict[str, Any]:
    return {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size}


def _written(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
