"""Find locked wheels in folders of the host by their hashes, and give them to a build as a context.

A build cannot read folders and ``file:`` indexes of the host. So the wheels of a lock are copied into a context, with a
folder for each layer.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torchbake.core.digest import digest, file_digest
from torchbake.core.files import link_or_copy
from torchbake.core.machine import host_platform
from torchbake.lock.lockfile import Pin
from torchbake.lock.wheel_tags import wheel_tags
from torchbake.matrix.spec import AMD64

BUILDER = "builder"  # the folder of programs that run in a build; they are in no image
Rank: TypeAlias = tuple[int, tuple[()] | tuple[int, str]]  # by its tags, and its build


def stage_wheels(
    layers: Mapping[str, Iterable[Pin]], folders: Iterable[Path], python: str, state: Path, *, always: bool = False,
    platform: str = AMD64,
) -> Path | None:  # fmt: skip
    """Return a folder with the locked wheels of each layer that are in ``folders``.

    If there are none, return None, or with ``always`` a folder without wheels.

    Wheels are hard links, or copies on another file system. The same wheels have the same folder.
    """
    places = tuple(folders)
    matches = {
        layer: wheels
        for layer, pins in layers.items()
        if (wheels := [one for pin in pins if (one := find_wheel(pin, places, python, _platform_of(layer, platform)))])
    }
    if not matches and not always:
        return None
    names = [f"{layer}/{wheel} {own}" for layer, wheels in matches.items() for wheel, own in wheels]
    target = state / "wheels" / digest(names).removeprefix("sha256:")[:16]
    for layer in layers:
        (target / layer).mkdir(parents=True, exist_ok=True)
        for wheel, _ in matches.get(layer, []):
            link_or_copy(wheel, target / layer / wheel.name)
    return target


def _platform_of(layer: str, platform: str) -> str:
    """Return the platform of a layer's wheels: for arm64, programs of the builder stage run on this machine's platform.

    `ImageSpec.interpreter_stage` is on amd64 for amd64.
    """
    return host_platform() if layer == BUILDER and platform != AMD64 else platform


def find_wheel(pin: Pin, folders: Iterable[Path], python: str, platform: str = AMD64) -> tuple[Path, str] | None:
    """Find the wheel of a pin for an image's ``python`` and platform that pip would prefer, with its hash."""
    for folder in folders:
        fitting = [
            (rank, path, known_hash)
            for path, known_hash in _candidates(folder, pin.name)
            if (rank := rank_of(path.name, pin, python, platform)) is not None
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
        from torchbake.hostconfig.index_page import linked_files  # noqa: PLC0415 - few hosts have such an index

        yield from linked_files(index)
    for path in folder.glob("*.whl"):
        if canonicalize_name(path.name.split("-")[0]) == name:
            yield path, ""


def rank_of(filename: str, pin: Pin, python: str, platform: str = AMD64) -> Rank | None:
    """Return the rank of a wheel for an image, the greatest for the best; None if it does not fit.

    Of wheels with the same tags the later build is better, as for pip and uv.
    Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/#file-name-convention
    """
    try:
        name, version, build, tags = parse_wheel_filename(filename)
        pinned_version = Version(pin.version)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    order = wheel_tags(python, platform)
    places = [order[tag] for tag in tags if tag in order]
    return (-min(places), build) if places and (name, version) == (pin.name, pinned_version) else None
