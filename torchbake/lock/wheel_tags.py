"""The tags of wheels that fit an image's CPython on its platform."""

from collections.abc import Mapping
from functools import cache

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from torchbake.lock.uv import OLDEST_GLIBC
from torchbake.matrix.spec import AMD64, ARM64, MACHINES

# The names before PEP 600, and the oldest C library of each platform: https://peps.python.org/pep-0599/
_BEFORE = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_FIRST = {AMD64: 5, ARM64: 17}

# The C library of each suite, 2.N. Sources: https://packages.debian.org/libc6 and https://packages.ubuntu.com/libc6
_GLIBC = {"bookworm": 36, "trixie": 41, "jammy": 35, "noble": 39, "resolute": 43}


def wheel_platforms(platform: str) -> tuple[str, ...]:
    """Return the names of the platforms that locks are made for, in order of preference: the newest C library first."""
    names = [
        name
        for minor in range(OLDEST_GLIBC, _FIRST[platform] - 1, -1)
        for name in (f"manylinux_2_{minor}", _BEFORE.get(minor))
        if name
    ]
    return tuple(f"{name}_{MACHINES[platform]}" for name in (*names, "linux"))


def _newer_platforms(platform: str) -> tuple[str, ...]:
    minors = range(OLDEST_GLIBC + 1, max(_GLIBC.values()) + 1)
    return tuple(f"manylinux_2_{minor}_{MACHINES[platform]}" for minor in minors)


@cache
def wheel_tags(python: str, platform: str = AMD64) -> Mapping[Tag, int]:
    """Return the tags that fit a Python such as ``3.11``, with their places in order of preference.

    The order is pip's on the oldest C library. Wheels that need a newer one are last: not every base can run them.
    """
    version = [int(part) for part in python.split(".")]
    interpreter = f"cp{python.replace('.', '')}"
    tags = (
        tag
        for platforms in (wheel_platforms(platform), _newer_platforms(platform))
        for of_kind in (
            cpython_tags(version, [interpreter], platforms),
            compatible_tags(version, interpreter, platforms),
        )
        for tag in of_kind
    )
    places = dict[Tag, int]()
    for tag in tags:
        places.setdefault(tag, len(places))
    return places


def glibc_of(suite: str) -> int:
    """Return N of the C library 2.N that a distribution's suite has; the oldest of all locks if it is unknown."""
    return _GLIBC.get(suite, OLDEST_GLIBC)


def glibc_for(filename: str, python: str) -> int:
    """Return N of the C library 2.N that a wheel which fits ``python`` needs, at least the oldest of all locks."""
    order, newer = wheel_tags(python), _newer_platforms(AMD64)
    fitting = (tag.platform for tag in parse_wheel_filename(filename)[3] if tag in order)
    minors = (newer.index(name) + OLDEST_GLIBC + 1 if name in newer else OLDEST_GLIBC for name in fitting)
    return min(minors, default=OLDEST_GLIBC)
