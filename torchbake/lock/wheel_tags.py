"""The tags of wheels that fit an image's CPython on its platform."""

from collections.abc import Mapping
from functools import cache

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from torchbake.lock.uv import PLATFORM

# The platforms that locks are made for, the newest C library first, and their names before PEP 600.
_OLDEST = int(PLATFORM.rpartition("_")[2])
_BEFORE = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}
_NAMES = [(f"manylinux_2_{minor}_x86_64", _BEFORE.get(minor)) for minor in range(_OLDEST, 4, -1)]
PLATFORMS = (*(name for names in _NAMES for name in names if name), "linux_x86_64")


# The C library of each suite, 2.N. Sources: https://packages.debian.org/libc6 and https://packages.ubuntu.com/libc6
_GLIBC = {"bookworm": 36, "trixie": 41, "jammy": 35, "noble": 39, "resolute": 43}
_NEWER = tuple(f"manylinux_2_{minor}_x86_64" for minor in range(_OLDEST + 1, max(_GLIBC.values()) + 1))


@cache
def wheel_tags(python: str) -> Mapping[Tag, int]:
    """Return the tags that fit a Python such as ``3.11``, with their places in order of preference.

    The order is pip's on the oldest C library. Wheels that need a newer one are last: not every base can run them.
    """
    version = [int(part) for part in python.split(".")]
    interpreter = f"cp{python.replace('.', '')}"
    tags = (
        tag
        for platforms in (PLATFORMS, _NEWER)
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
    return _GLIBC.get(suite, _OLDEST)


def glibc_for(filename: str, python: str) -> int:
    """Return N of the C library 2.N that a wheel which fits ``python`` needs, at least the oldest of all locks."""
    order = wheel_tags(python)
    fitting = (tag.platform for tag in parse_wheel_filename(filename)[3] if tag in order)
    return min((_NEWER.index(name) + _OLDEST + 1 if name in _NEWER else _OLDEST for name in fitting), default=_OLDEST)
