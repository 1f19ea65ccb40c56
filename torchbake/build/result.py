"""The result of a build for one image. The imports are few, because a build with nothing to do needs no others."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torchbake.engine.image import EngineImage
from torchbake.matrix.spec import Spec

Status: TypeAlias = Literal["built", "up-to-date", "failed", "skipped", "planned"]


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """The result for one image. ``digest`` and ``size_bytes`` are the engine's; None if the engine has no image.

    ``exit_code`` is the code of the image's failure, and ``next`` the next step.
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


def as_json(results: Sequence[BuildResult], specs: Iterable[Spec]) -> list[dict[str, Any]]:
    """Return the results for programs, with the platforms of their images."""
    platforms = {spec.id: spec.platform for spec in specs}
    return [asdict(result) | {"platform": platforms[result.id]} for result in results]


def up_to_date(name: str, ref: str, tags: Sequence[str], image: EngineImage, *, moved_tags: int = 0) -> BuildResult:
    """Return the result for an image with the same inputs, of which ``moved_tags`` tags were corrected."""
    return BuildResult(
        id=name,
        ref=ref,
        tags=tuple(tags),
        status="up-to-date",
        reason="inputs unchanged" + (f"; {moved_tags} tags corrected" if moved_tags else ""),
        digest=image.digest,
        size_bytes=image.size_bytes,
    )


def sizes_file(state: Path) -> Path:
    """Return the file with a project's unpacked sizes by digest: a request to the engine takes 10 ms an image."""
    return state / "sizes.json"


def read_sizes(path: Path) -> dict[str, int]:
    """Read the sizes; none if the file cannot be read."""
    try:
        return {str(digest): int(size) for digest, size in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
