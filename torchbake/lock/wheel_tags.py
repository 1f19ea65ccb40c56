"""The tags of wheels that fit an image's CPython on its platform."""

from collections.abc import Mapping
from functools import cache

from packaging.tags import Tag, compatible_tags, cpython_tags

from torchbake.lock.uv import PLATFORM

# The platforms that locks are made for, the newest C library first, and their names before PEP 600.
_OLDEST = int(PLATFORM.rpartition("_")[2])
_BEFORE = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}
_NAMES = [(f"manylinux_2_{minor}_x86_64", _BEFORE.get(minor)) for minor in range(_OLDEST, 4, -1)]
PLATFORMS = (*(name for names in _NAMES for name in names if name), "linux_x86_64")


@cache
def wheel_tags(python: str) -> Mapping[Tag, int]:
    """Return the tags that fit a Python such as ``3.11``, with their places in pip's order of preference."""
    version = [int(part) for part in python.split(".")]
    interpreter = f"cp{python.replace('.', '')}"
    tags = (
        *cpython_tags(version, [interpreter], PLATFORMS),
        *compatible_tags(version, interpreter, PLATFORMS),
    )
    return {tag: place for place, tag in enumerate(tags)}
