"""Deliberately broken images, one for each image check: what is wrong with it, and how it is made.

Each is built on an image that passes everything, and must fail exactly the check that it is named after.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Broken:
    """``dockerfile`` is what follows ``FROM``; ``base`` is what kind of image that is: cpu, devel, cuda or init.

    ``files`` are put into the build context. ``program`` replaces texts in the init image's source, which is then
    compiled into the context as ``volume-permissions``. ``tag`` is an additional tag. ``only`` are the checks that
    judge it; empty: all but the smoke tests, which take longer. ``row`` is YAML, what a matrix of its own adds to the
    image, and ``beside`` are the files beside that matrix.
    """

    what: str
    dockerfile: str
    base: str = "cpu"
    only: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    program: Mapping[str, str] = field(default_factory=dict)
    tag: str = ""
    row: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)


def as_root(*commands: str) -> str:
    """Commands of one layer, run as root; the image's user stays its own."""
    return "USER 0\nRUN " + " \\\n && ".join(commands) + "\nUSER 1001\n"


def entrypoint(*lines: str, end: str = 'exec "$@"') -> dict[str, str]:
    """Another entrypoint script: these lines of shell, after what the true one does."""
    return {"entrypoint": "\n".join(["#!/bin/sh", *_HOME, *lines, end, ""])}


# What the true entrypoint does, without which half of the checks on users fail at once.
_HOME = (
    "export USER=user LOGNAME=user",
    '[ -w "$HOME" ] || { HOME=/tmp/home-$(id -u); mkdir -p "$HOME"; export HOME; }',
    'export XDG_CACHE_HOME="$HOME/.cache" TORCHINDUCTOR_CACHE_DIR="$HOME/.cache/torchinductor"',
    'export TRITON_CACHE_DIR="$HOME/.cache/triton"',
)
COPY_ENTRYPOINT = "COPY --chmod=0755 entrypoint /opt/torchbake/entrypoint\n"
SITE = "/opt/venv/lib/python3.11/site-packages"
