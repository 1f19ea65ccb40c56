"""The inputs digest: one sha256 over everything that decides an image's content."""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from torchbake.project import TOOLKIT
from torchbake.spec import ImageSpec, Spec

# What each kind of image takes from the toolkit's folders.
_TOOLKIT_FILES = {
    "pytorch": ("entrypoints/entrypoint", "layers/apt-install", "layers/trim.toml", "layers/wheels.py"),
    "init": ("entrypoints/volume-permissions.c", "layers/apt-install"),
}


def inputs_digest(spec: Spec, *, dockerfile: str, lock_text: str, builder_lock: str, base_digest: str) -> str:
    """``sha256:…`` of the rendered Dockerfile, the lock, the toolkit's files in the image, and the base.

    Not in it: the revision and date labels, else every commit would build every image.
    """
    parts = [dockerfile, base_digest]
    if isinstance(spec, ImageSpec):
        parts += [lock_text, builder_lock]
    return digest((*parts, *(_toolkit_file(name) for name in _TOOLKIT_FILES[spec.kind])))


def digest(parts: Iterable[str]) -> str:
    """The sha256 over texts, each with its length before it, so that no two lists run together."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode()
        total.update(len(data).to_bytes(8, "big") + data)
    return f"sha256:{total.hexdigest()}"


@cache
def _toolkit_file(name: str) -> str:
    return Path(TOOLKIT, name).read_text(encoding="utf-8")
