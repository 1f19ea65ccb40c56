"""Groups of wheels with a layer for each wheel: their build stages, and the order of the layers in an image."""

import re
from dataclasses import dataclass

from torchbake.lock.lockfile import LayerName, Lock, Pin
from torchbake.matrix.spec import ARM64

# NVIDIA's libraries that change with torch's version rather than with CUDA's. Fewer images share them.
_WITH_TORCH = re.compile(r"nvidia-(cusparselt|cudnn|nvshmem)\b")


@dataclass(frozen=True, kw_only=True)
class WheelGroup:
    """Wheels of one build stage. Each is a layer with files below ``root``.

    ``layer`` names the stage and the part of the lock. ``bytecode`` is True if the modules are compiled.
    """

    layer: LayerName
    root: str
    comment: str
    on_path: bool = True
    trim: bool = True
    bytecode: bool = False


NVIDIA = WheelGroup(layer="nvidia", root="/nvidia", comment="CUDA's libraries, as torch's wheels ask for them")
TORCH = WheelGroup(layer="torch", root="/pytorch", comment="torch itself, and triton with it", bytecode=True)
_COMPILERS = "NVIDIA's compilers, which the row asks for"
DEVEL = WheelGroup(layer="devel", root="/nvidia", comment=_COMPILERS, on_path=False, trim=False)
_LARGE = "large wheels of a project, which change seldom"
HEAVY = WheelGroup(layer="heavy", root="/packages", comment=_LARGE, trim=False, bytecode=True)
GROUPS = (NVIDIA, TORCH, DEVEL, HEAVY)


# Rules of layers/trim.toml that do not hold for wheels of a platform.
_KEPT = {ARM64: ("libgfortran",)}  # OpenBLAS, which torch's wheels for arm64 contain, links it


def kept_rules(platform: str) -> tuple[str, ...]:
    """Return the names of the rules of layers/trim.toml whose files stay in the wheels of a platform."""
    return _KEPT.get(platform, ())


def wheel_groups(lock: Lock) -> list[WheelGroup]:
    """Return the groups of which a lock has wheels."""
    return [group for group in GROUPS if lock.layers[group.layer]]


def wheel_order(lock: Lock) -> list[Pin]:
    """Return the wheels of these groups, lowest layer first: wheels that more images share are lower.

    Engines unpack a layer once for each list of layers below it.
    """
    pins = [pin for group in wheel_groups(lock) for pin in lock.layers[group.layer]]
    cuda = {pin.name for pin in lock.layers["nvidia"] if not _WITH_TORCH.match(pin.name)}
    return sorted(pins, key=lambda pin: pin.name not in cuda)
