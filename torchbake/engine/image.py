"""An image as an engine lists it. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image in the engine. ``digest`` is its id there; ``size_bytes`` is as the engine counts it."""

    digest: str
    tags: tuple[str, ...]
    labels: dict[str, str]
    size_bytes: int
