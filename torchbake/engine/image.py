"""Images as an engine lists them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image in the engine. ``digest`` is its id there; ``size_bytes`` is as the engine counts it."""

    digest: str
    tags: tuple[str, ...]
    labels: dict[str, str]
    size_bytes: int


def of_inspection(attrs: Mapping[str, Any]) -> Image:
    """An image as an engine describes it alone; ``size_bytes`` is not that of the engine's list."""
    return Image(
        digest=attrs["Id"],
        tags=_tags(attrs),
        labels=attrs["Config"].get("Labels") or {},
        size_bytes=attrs["Size"],
    )


def by_tag(entries: Iterable[Mapping[str, Any]]) -> dict[str, Image]:
    """Every image of an engine's list by each of its tags (``repository:tag``)."""
    listed = [
        Image(
            digest=entry["Id"],
            tags=_tags(entry),
            labels=entry.get("Labels") or {},
            size_bytes=entry["Size"],
        )
        for entry in entries
    ]
    return {tag: image for image in listed for tag in image.tags}


def short_name(name: str) -> str:
    """The name of an image as Docker lists it. Podman lists the registry of names that have none: ``docker.io/``."""
    return name.removeprefix("docker.io/").removeprefix("library/") if name.startswith("docker.io/") else name


def _tags(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(short_name, attrs.get("RepoTags") or ()))


def holds(images: Mapping[str, Image], reference: str, image: Image) -> bool:
    """Whether a tag points at the image; ``images`` are the engine's, by tag."""
    held = images.get(reference)
    return held is not None and held.digest == image.digest
