"""Layers of images, and the bytes that images share. Pure.

A registry stores a compressed layer once for all images that have it. An engine stores an uncompressed layer once for
all images that have it above the same layers. In both, layers with the same key are stored once: the key is the
digest of the blob in a registry, and the chain id in an engine.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

_LONGEST = 72  # characters of a layer's name
_READ = 2000  # characters of a step that are read, as images of others can have steps of any length
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"COPY /layers/(\S+) /.*"), r"\1"),
    (re.compile(r"COPY /bytecode/(\S+) /.*"), r"bytecode of \1"),
    (re.compile(r"COPY /links /(?:pytorch|packages).*"), "links to NVIDIA's libraries"),
    (re.compile(r"COPY /headers /pytorch.*"), "torch's headers"),
    (re.compile(r"COPY /opt/venv /opt/venv.*"), "site packages"),
    (re.compile(r"COPY /entries /opt/venv.*"), "entries of torch and NVIDIA's packages"),
    (re.compile(r"COPY (?:--\S+ )*/entrypoints/pytorch .*"), "torchbake's run and entrypoint"),
    (re.compile(r"COPY (?:--\S+ )*(?:\S*/)?(\S+) /\1\b.*"), r"\1"),
    (re.compile(r"RUN (?:\S+=\S+ )*/bin/sh -c /run/apt-install (?:--trim )?([^&|;]*?)\s*(?:[&|;].*)?"), r"apt: \1"),
)
_BELOW_BASE = re.compile(r"COPY (?:/(?:layers|bytecode)/\S+|/links|/headers) /(?:nvidia|packages|pytorch)\b")
_WITHOUT_LAYER = re.compile(
    r"(?:/bin/sh -c #\(nop\)\s+)?(?:ARG|CMD|ENTRYPOINT|ENV|EXPOSE|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|SHELL|STOPSIGNAL"
    r"|USER|VOLUME)\b"
)


@dataclass(frozen=True, kw_only=True)
class SharedLayer:
    """One layer of an image. Layers with the same ``key`` are stored once."""

    key: str
    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class LayerStep:
    """One entry of an image's history, and the bytes that it added."""

    created_by: str
    size: int = 0


class Frozen(BaseModel):
    """A model of the report's data."""

    model_config = ConfigDict(frozen=True)


class Share(Frozen):
    """A layer, and the number of other images that have it, too."""

    name: str
    key: str
    size: int
    others: int


class Breakdown(Frozen):
    """An image's layers, lowest first. ``shared`` are the bytes that another image has, too."""

    layers: tuple[Share, ...]
    total: int
    shared: int
    own: int


class Stock(Frozen):
    """Sizes of several images: ``apart`` is the sum, ``together`` counts each layer once."""

    images: int
    apart: int
    together: int


def break_down(images: Mapping[str, Sequence[SharedLayer]]) -> dict[str, Breakdown]:
    """Return each image's layers with the number of other images that have them; leave out images without layers."""
    unique = {name: {layer.key: layer for layer in layers}.values() for name, layers in images.items() if layers}
    holders = Counter(layer.key for layers in unique.values() for layer in layers)

    def breakdown(layers: Iterable[SharedLayer]) -> Breakdown:
        shares = tuple(
            Share(name=layer.name, key=layer.key, size=layer.size, others=holders[layer.key] - 1) for layer in layers
        )
        total, shared = sum(each.size for each in shares), sum(each.size for each in shares if each.others)
        return Breakdown(layers=shares, total=total, shared=shared, own=total - shared)

    return {name: breakdown(layers) for name, layers in unique.items()}


def stock(breakdowns: Iterable[Breakdown]) -> Stock:
    """Return the sizes of several images together."""
    parts = tuple(breakdowns)
    once = {layer.key: layer.size for one in parts for layer in one.layers}
    return Stock(images=len(parts), apart=sum(one.total for one in parts), together=sum(once.values()))


def match_steps(keys: Sequence[str], history: Sequence[LayerStep], *, base: str) -> tuple[SharedLayer, ...]:
    """Match an image's layers to its history, both lowest first; return none if the numbers differ.

    An engine does not report which entries of a history made layers. These are the entries that added bytes, or all
    whose instruction can. ``base`` is the name of the base's layer, which is the lowest without a wheel; empty: none.
    """
    with_bytes = [step for step in history if step.size]
    with_layer = [step for step in history if not _WITHOUT_LAYER.match(step.created_by)]
    steps = next((parts for parts in (with_bytes, with_layer) if len(parts) == len(keys)), None)
    if steps is None:
        return ()
    stored = [(key, step.size) for key, step in zip(keys, steps, strict=True)]
    return name_layers(stored, [step.created_by for step in steps], base=base)


def name_layers(stored: Sequence[tuple[str, int]], steps: Sequence[str], *, base: str) -> tuple[SharedLayer, ...]:
    """Name layers, given as keys and sizes, by the steps that made them; number them if the counts differ."""
    names = [f"layer {number + 1}" for number in range(len(stored))]
    if stored and len(steps) == len(stored):
        names = [step_name(step) for step in steps]
        above = next((number for number, step in enumerate(steps) if not _BELOW_BASE.match(step)), None)
        if base and above is not None:
            names[above] = base
    return tuple(SharedLayer(key=key, name=name, size=size) for (key, size), name in zip(stored, names, strict=True))


def step_name(created_by: str) -> str:
    """Return an entry of a history in few words: the copied or installed content."""
    text = " ".join(created_by[:_READ].split()).removesuffix("# buildkit").strip()
    for pattern, name in _NAMES:
        match = pattern.fullmatch(text)
        if match:
            text = match.expand(name)
            break
    text = "".join(letter for letter in text if letter.isprintable())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
