"""Compare two images that should be equal, and find the first difference of each layer."""

import hashlib
import itertools
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from torchbake.core.digest import short_digest
from torchbake.errors import ReproduceError
from torchbake.oci.labels import steps_in
from torchbake.oci.layer_stream import LOOK, UNREADABLE, uncompressed
from torchbake.oci.manifest import Manifest
from torchbake.store.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first difference in a layer (counted from 1) or in the config of two images."""

    where: str
    what: str


@dataclass(frozen=True, kw_only=True)
class ImageDiff:
    """The comparison of two images, named by the digests of their manifests. Equal images have no differences."""

    digests: tuple[str, str]
    layers: int
    equal: int
    differences: tuple[Difference, ...]


def compare(first: tuple[Layout, str], second: tuple[Layout, str]) -> ImageDiff:
    """Compare two images, each by its layout and digest. Raises BuildError for an incomplete image."""
    sides = [_Side(layout, digest) for layout, digest in (first, second)]
    pairs = list(itertools.zip_longest(*(side.manifest.layers for side in sides)))
    equal = sum(1 for blobs in pairs if blobs[0] == blobs[1])
    # Layers are compared themselves, so the diff IDs in the config are left out.
    mine, theirs = ({key: value for key, value in side.config.items() if key != "rootfs"} for side in sides)
    changed = _first_key(mine, theirs)
    differences = [Difference(where="config", what=changed)] if changed else []
    differences += _layers(sides)
    if first[1] != second[1] and not differences:
        differences.append(Difference(where="manifest", what="its own fields or their order"))
    return ImageDiff(
        digests=(first[1], second[1]),
        layers=len(pairs),
        equal=equal,
        differences=tuple(differences),
    )


class _Side:
    def __init__(self, layout: Layout, digest: str) -> None:
        self.layout, self.manifest = layout, layout.get(digest)
        config = self.manifest.config
        self.config = Manifest(data=layout.path(config.digest).read_bytes(), media_type=config.media_type).content


def _first_key(first: Any, second: Any, path: str = "") -> str:
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        first, second = dict(enumerate(first)), dict(enumerate(second))
    if isinstance(first, dict) and isinstance(second, dict):
        keys = sorted({*first, *second})
        return next(filter(None, (_first_key(first.get(key), second.get(key), f"{path}.{key}") for key in keys)), "")
    if first == second:
        return ""
    return f"{path.removeprefix('.')}: {json.dumps(first)} and {json.dumps(second)}"


def _layers(sides: Sequence[_Side]) -> Iterator[Difference]:
    steps = steps_in(sides[0].config)
    pairs = itertools.zip_longest(*(side.manifest.layers for side in sides))
    for number, (first, second) in enumerate(pairs, start=1):
        if first == second:
            continue
        made_by = f" ({steps[number - 1][:60]})" if number <= len(steps) else ""
        where = f"layer {number}{made_by}"
        if first is None or second is None:
            yield Difference(where=where, what=f"only the {'first' if second is None else 'second'} has it")
            continue
        paths = [side.layout.path(blob.digest) for side, blob in zip(sides, (first, second), strict=True)]
        yield Difference(where=where, what=first_difference(*paths))


def first_difference(first: Path, second: Path) -> str:
    """Return the first difference between the entries of two layers. Raises ReproduceError for a malformed layer."""
    try:
        for mine, theirs in itertools.zip_longest(_entries(first), _entries(second)):
            if mine != theirs:
                return _entry_difference(mine, theirs)
    except UNREADABLE as error:
        raise ReproduceError(f"{first} or {second} is not a layer: {error}") from None
    return "the same entries, compressed differently"


def _entry_difference(mine: dict[str, Any] | None, theirs: dict[str, Any] | None) -> str:
    if mine is None or theirs is None:
        entry, which = (mine, "first") if mine else (theirs, "second")
        return f"{entry['name'] if entry else ''}: only the {which} has it"
    if mine["name"] != theirs["name"]:
        return f"{mine['name']} where the other has {theirs['name']}"
    differing = (f"{key} {mine[key]} and {theirs[key]}" for key in mine if mine[key] != theirs[key])
    return f"{mine['name']}: {', '.join(differing)}"


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    read = partial(tarfile.open, mode="r|", errors="backslashreplace")  # names that are not text can be shown so
    with path.open("rb") as file, uncompressed(file, file.peek(LOOK)[:LOOK]) as stream, read(fileobj=stream) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            yield {
                "name": member.name,
                "type": member.type.decode(),
                "mode": oct(member.mode),
                "owner": f"{member.uid}:{member.gid}",
                "link": member.linkname,
                "time": _time(member),
                "size": member.size,
                "content": short_digest(hashlib.file_digest(content, "sha256").hexdigest()) if content else "",  # type: ignore[arg-type]
                "attributes": {key: value for key, value in member.pax_headers.items() if key != "mtime"},
            }


def _time(member: tarfile.TarInfo) -> str:
    exact = member.pax_headers.get("mtime", "")  # tarfile rounds it to a float
    try:
        text = datetime.fromtimestamp(int(member.mtime), UTC).isoformat()
    except (OSError, OverflowError, ValueError):  # a time that no calendar has
        text = f"{member.mtime} s"
    return f"{text} ({exact})" if exact else text
