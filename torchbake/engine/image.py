"""Images of an engine, by its API. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EngineImage:
    """An image of an engine. ``digest`` is the engine's ID, and ``size_bytes`` the engine's figure."""

    digest: str
    tags: tuple[str, ...]
    labels: dict[str, str]
    size_bytes: int


def of_inspection(attrs: Mapping[str, Any]) -> EngineImage:
    """Return an image by the engine's description of it, whose ``Size`` differs from the one in the engine's list."""
    return _image(attrs, attrs["Config"])


def by_tag(entries: Iterable[Mapping[str, Any]]) -> dict[str, EngineImage]:
    """Return the images of an engine's list by each of their tags (``repository:tag``)."""
    images = [_image(entry, entry) for entry in entries]
    return {tag: image for image in images for tag in image.tags}


def short_name(name: str) -> str:
    """Return the name of an image as in Docker's list. Podman adds ``docker.io/`` to names without a registry."""
    return name.removeprefix("docker.io/").removeprefix("library/") if name.startswith("docker.io/") else name


def _image(attrs: Mapping[str, Any], config: Mapping[str, Any]) -> EngineImage:
    tags = tuple(map(short_name, attrs.get("RepoTags") or ()))
    return EngineImage(digest=attrs["Id"], tags=tags, labels=config.get("Labels") or {}, size_bytes=attrs["Size"])


def holds(images: Mapping[str, EngineImage], reference: str, image: EngineImage) -> bool:
    """Return whether a tag is a tag of this image; ``images`` are the engine's, by tag."""
    tagged = images.get(reference)
    return tagged is not None and tagged.digest == image.digest
