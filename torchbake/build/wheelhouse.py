"""Find locked wheels in folders of the host by their hashes, and give them to a build as a context.

A build cannot read folders and ``file:`` indexes of the host. So the wheels of a lock are copied into a context, with a
folder for each layer.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torchbake.core.digest import digest, file_digest
from torchbake.core.files import replacing
from torchbake.lock.lockfile import Pin
from torchbake.lock.uv import PLATFORM

# The platforms that locks are made for, the newest C library first, and their names before PEP 600.
_OLDEST = int(PLATFORM.rpartition("_")[2])
_BEFORE = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}
_NAMES = [(f"manylinux_2_{minor}_x86_64", _BEFORE.get(minor)) for minor in range(_OLDEST, 4, -1)]
PLATFORMS = (*(name for names in _NAMES for name in names if name), "linux_x86_64")

Rank: TypeAlias = tuple[int, tuple[()] | tuple[int, str]]  # by its tags, and its build


def stage_wheels(layers: Mapping[str, Iterable[Pin]], folders: Iterable[Path], python: str, state: Path) -> Path | None:
    """Return a folder with the locked wheels of each layer that are in ``folders``; None if there are none.

    Wheels are hard links, or copies on another file system. The same wheels have the same folder.
    """
    places = tuple(folders)
    matches = {
        layer: wheels
        for layer, pins in layers.items()
        if (wheels := [one for pin in pins if (one := find_wheel(pin, places, python))])
    }
    if not matches:
        return None
    names = [f"{layer}/{wheel} {own}" for layer, wheels in matches.items() for wheel, own in wheels]
    target = state / "wheels" / digest(names).removeprefix("sha256:")[:16]
    for layer in layers:
        (target / layer).mkdir(parents=True, exist_ok=True)
        for wheel, _ in matches.get(layer, []):
            _link(wheel, target / layer / wheel.name)
    return target


def find_wheel(pin: Pin, folders: Iterable[Path], python: str) -> tuple[Path, str] | None:
    """Find the wheel of a pin for an image's ``python`` that pip would prefer, and return it with its hash."""
    for folder in folders:
        fitting = [
            (rank, path, known_hash)
            for path, known_hash in _candidates(folder, pin.name)
            if (rank := rank_of(path.name, pin, python)) is not None
        ]
        for _, path, known_hash in sorted(sorted(fitting, key=itemgetter(1)), key=itemgetter(0), reverse=True):
            own = known_hash or file_digest(path)
            if own in pin.hashes:
                return path, own
    return None


def _candidates(folder: Path, name: str) -> Iterator[tuple[Path, str]]:
    """Yield wheels of one name in a flat folder, or in a simple index (PEP 503), with the hash of the index or ""."""
    index = folder / name / "index.html"
    if index.is_file():
        from torchbake.build.index_page import linked_files  # noqa: PLC0415 - few hosts have such an index

        yield from linked_files(index)
    for path in folder.glob("*.whl"):
        if canonicalize_name(path.name.split("-")[0]) == name:
            yield path, ""


def rank_of(filename: str, pin: Pin, python: str) -> Rank | None:
    """Return the rank of a wheel for an image, the greatest for the best; None if it does not fit.

    Of wheels with the same tags the later build is better, as for pip and uv.
    Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/#file-name-convention
    """
    try:
        name, version, build, tags = parse_wheel_filename(filename)
        pinned_version = Version(pin.version)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    order = _tags_of(python)
    places = [order[tag] for tag in tags if tag in order]
    return (-min(places), build) if places and (name, version) == (pin.name, pinned_version) else None


@cache
def _tags_of(python: str) -> Mapping[Tag, int]:
    """Return the tags of wheels for an image's CPython, with their places in pip's order of preference."""
    version = [int(part) for part in python.split(".")]
    interpreter = f"cp{python.replace('.', '')}"
    tags = (
        *cpython_tags(version, [interpreter], PLATFORMS),
        *compatible_tags(version, interpreter, PLATFORMS),
    )
    return {tag: place for place, tag in enumerate(tags)}


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        with replacing(target) as beside:
            shutil.copy2(source, beside)
