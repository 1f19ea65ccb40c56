"""What became of one image of a build. Nothing heavy is imported here: a build with nothing to do needs no more."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from torchbake.engine.image import Image

Status: TypeAlias = Literal["built", "up-to-date", "failed", "skipped", "planned"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one image. ``digest`` and ``size_bytes`` are the engine's; None when it has none.

    ``exit_code`` is that of its own failure, and ``next`` what to do about it.
    """

    id: str
    ref: str
    tags: tuple[str, ...]
    status: Status
    reason: str
    digest: str | None = None
    size_bytes: int | None = None
    seconds: float = 0.0
    exit_code: int = 0
    next: str = ""


def up_to_date(name: str, ref: str, tags: Sequence[str], image: Image, *, moved: int = 0) -> Result:
    """An image that the engine has with the same inputs; so many of its tags had to be put right."""
    return Result(
        id=name,
        ref=ref,
        tags=tuple(tags),
        status="up-to-date",
        reason="inputs unchanged" + (f"; {moved} tags put right" if moved else ""),
        digest=image.digest,
        size_bytes=image.size_bytes,
    )


def sizes_file(state: Path) -> Path:
    """Where a project remembers unpacked sizes by digest: asking the engine takes it 10 ms an image."""
    return state / "sizes.json"


def read_sizes(path: Path) -> dict[str, int]:
    """What is remembered there; nothing where it cannot be read."""
    try:
        return {str(digest): int(size) for digest, size in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
