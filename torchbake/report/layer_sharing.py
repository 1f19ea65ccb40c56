"""Layers and the bytes that images share. Pure.

Compressed, in a registry, a layer is stored once for all images that have it. Uncompressed, in an engine, it is stored
once for all images that have it on top of the same layers. Both are one question when a layer's key says where it
lies: its blob's digest in a registry, the digest of its chain in an engine.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, computed_field

_LONGEST = 72  # characters of a layer's name
_READ = 2000  # characters of a step; whoever made the image wrote it
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"COPY /layers/(\S+) /.*"), r"\1"),
    (re.compile(r"COPY /bytecode/(\S+) /.*"), r"bytecode of \1"),
    (re.compile(r"COPY /links /pytorch.*"), "links to NVIDIA's libraries"),
    (re.compile(r"COPY /headers /pytorch.*"), "torch's headers"),
    (re.compile(r"COPY /opt/venv /opt/venv.*"), "site packages"),
    (re.compile(r"COPY (?:--\S+ )*/entrypoints/pytorch .*"), "torchbake's run and entrypoint"),
    (re.compile(r"COPY (?:--\S+ )*(?:\S*/)?(\S+) /\1\b.*"), r"\1"),
    (re.compile(r"RUN (?:\S+=\S+ )*/bin/sh -c /run/apt-install ([^&|;]*?)\s*(?:[&|;].*)?"), r"apt: \1"),
)
_BELOW_BASE = re.compile(r"COPY (?:/(?:layers|bytecode)/\S+|/links|/headers) /(?:nvidia|pytorch)\b")
_WITHOUT_LAYER = re.compile(
    r"(?:/bin/sh -c #\(nop\)\s+)?(?:ARG|CMD|ENTRYPOINT|ENV|EXPOSE|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|SHELL|STOPSIGNAL"
    r"|USER|VOLUME)\b"
)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of an image. ``key`` says where its bytes lie: two layers with one key are stored once."""

    key: str
    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """One line of an image's history, and the bytes that it added."""

    created_by: str
    size: int = 0


class Share(BaseModel):
    """A layer, and how many other images have it too."""

    model_config = ConfigDict(frozen=True)

    name: str
    key: str
    size: int
    others: int


class Breakdown(BaseModel):
    """An image's layers, lowest first. ``shared`` are the bytes that at least one other image has too."""

    model_config = ConfigDict(frozen=True)

    layers: tuple[Share, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return sum(layer.size for layer in self.layers)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shared(self) -> int:
        return sum(layer.size for layer in self.layers if layer.others)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def own(self) -> int:
        return self.total - self.shared


class Stock(BaseModel):
    """Images together: ``apart`` is the sum of their sizes, ``together`` what is stored, each layer once."""

    model_config = ConfigDict(frozen=True)

    images: int
    apart: int
    together: int


def break_down(images: Mapping[str, Sequence[Layer]]) -> dict[str, Breakdown]:
    """Each image's layers with what others have too; images without layers are left out."""
    holders = Counter(key for layers in images.values() for key in {layer.key for layer in layers})
    return {
        name: Breakdown(
            layers=tuple(
                Share(name=layer.name, key=layer.key, size=layer.size, others=holders[layer.key] - 1)
                for layer in _each_once(layers)
            )
        )
        for name, layers in images.items()
        if layers
    }


def stock(breakdowns: Iterable[Breakdown]) -> Stock:
    """What images take apart and together."""
    found = tuple(breakdowns)
    once = {layer.key: layer.size for one in found for layer in one.layers}
    return Stock(images=len(found), apart=sum(one.total for one in found), together=sum(once.values()))


def match_steps(keys: Sequence[str], history: Sequence[Step], *, base: str) -> tuple[Layer, ...]:
    """An image's layers from their keys and its history, both lowest first; none where the two cannot be matched.

    An engine does not say which lines of a history made layers: those that added bytes, or else those whose
    instruction can. ``base`` is the name of the base's layer, the lowest that no wheel made; empty: it has none.
    """
    made = ([step for step in history if step.size], [step for step in history if not _without_layer(step)])
    steps = next((found for found in made if len(found) == len(keys)), None)
    if steps is None:
        return ()
    stored = [(key, step.size) for key, step in zip(keys, steps, strict=True)]
    return name_layers(stored, [step.created_by for step in steps], base=base)


def name_layers(stored: Sequence[tuple[str, int]], steps: Sequence[str], *, base: str) -> tuple[Layer, ...]:
    """Layers from their keys and sizes and the steps that made them; numbered where those are not as many."""
    names = [f"layer {number + 1}" for number in range(len(stored))]
    if stored and len(steps) == len(stored):
        names = [step_name(step) for step in steps]
        above = next((number for number, step in enumerate(steps) if not _BELOW_BASE.match(step)), None)
        if base and above is not None:
            names[above] = base
    return tuple(Layer(key=key, name=name, size=size) for (key, size), name in zip(stored, names, strict=True))


def step_name(created_by: str) -> str:
    """A line of a history in few words: what was copied or installed."""
    text = " ".join(created_by[:_READ].split()).removesuffix("# buildkit").strip()
    for pattern, name in _NAMES:
        match = pattern.fullmatch(text)
        if match:
            text = match.expand(name)
            break
    text = "".join(letter for letter in text if letter.isprintable())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _without_layer(step: Step) -> bool:
    return bool(_WITHOUT_LAYER.match(step.created_by))


def _each_once(layers: Sequence[Layer]) -> Iterable[Layer]:
    """A layer that an image has twice is stored once."""
    return {layer.key: layer for layer in layers}.values()
