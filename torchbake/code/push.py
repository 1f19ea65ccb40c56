"""Put a layer of code on an image in a registry: what the registry lacks is sent, and the tag is written last."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from torchbake.code.layer import CodeLayer, LayerCompression
from torchbake.oci.manifest import Manifest
from torchbake.oci.reference import Reference
from torchbake.registry.client import Registry

Tell = Callable[[str], None]
MakeLayer = Callable[[LayerCompression], CodeLayer]


@dataclass(frozen=True, kw_only=True)
class BaseImage:
    """An image in a registry, by its digest, with its manifest and its config."""

    reference: Reference
    manifest: Manifest
    config: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PushedCode:
    """An image with code: its reference with tag and digest, its base, the bytes that were sent, and the seconds."""

    reference: Reference
    base: Reference
    files: int
    size: int
    sent: int
    seconds: float


def push_code(
    registry: Registry, reference: Reference, make: MakeLayer, *, at: str, work: Path, today: date,
    to: Registry | None = None, platform: str = "", copy: bool = False, dry_run: bool = False,
    tell: Tell = lambda _: None,
) -> PushedCode:  # fmt: skip
    """Put the layer that ``make`` writes on an image of ``registry``, and push the result.

    The result goes to the image's own repository, or to that of ``to``. ``platform``, as in ``linux/arm64``, chooses an
    image of an index. With ``copy`` layers that cannot be mounted are copied through ``work``. Nothing is sent on a
    ``dry_run``. Raises RegistryError, UsageError and OSError; a run that ended early leaves nothing but blobs.
    """
    raise NotImplementedError
