"""Which wheels' layers this machine can pack beside a build, by their names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import Version

from torchbake.lock.lockfile import Layer, Lock, Pin

_CUSPARSELT = re.compile(r"nvidia-cusparselt(?:-cu\d+)?")
_CUSPARSELT_IN_NVIDIA = Version("0.7")  # older ones have a folder `cusparselt`


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of a Dockerfile that installs wheels, each a layer below ``root``. It has the name of the lock's part."""

    name: Layer
    root: str
    bytecode: bool = False

    def command(self, pin: Pin) -> str:
        """What an image's history calls the layer of a wheel."""
        return f"COPY /layers/{pin.name} {self.root} # buildkit"

    def bytecode_command(self, pin: Pin) -> str:
        """The same of the layer of its modules' bytecode, which stands above it where it was packed here."""
        return f"COPY /bytecode/{pin.name} {self.root} # buildkit"

    def sure(self, pin: Pin) -> str:
        """The folder of a wheel's layer that is there whatever else it holds."""
        return "nvidia" if self.root == "/nvidia" else pin.name

    def holds(self, names: Iterable[str]) -> bool:
        """Whether these files of a wheel are where no other layer has any."""
        ours = (name.startswith("nvidia/") or name.partition("/")[0].endswith(".dist-info") for name in names)
        return all(ours) if self.root == "/nvidia" else not any(name.startswith("nvidia/") for name in names)


NVIDIA = Stage(name="nvidia", root="/nvidia")
TORCH = Stage(name="torch", root="/pytorch", bytecode=True)
STAGES = (NVIDIA, TORCH)


@dataclass(frozen=True, kw_only=True)
class Part:
    """The wheels of a stage: those whose layers this machine can pack, and the ``rest``, which the stage installs."""

    stage: Stage
    pins: tuple[Pin, ...]
    rest: tuple[Pin, ...]


def packable(lock: Lock) -> tuple[Part, ...]:
    """What can be packed of an image, by stages: the wheels of which is known where their files are."""
    return tuple(part for stage in STAGES if (part := _part_of(stage, lock)).pins)


def has_folder_of_its_own(pin: Pin) -> bool:
    """Whether a wheel of NVIDIA's has files beside `nvidia/`: which, only the wheel itself tells."""
    return _CUSPARSELT.fullmatch(pin.name) is not None and Version(pin.version) < _CUSPARSELT_IN_NVIDIA


def _part_of(stage: Stage, lock: Lock) -> Part:
    pins = lock.layers[stage.name]
    rest = tuple(filter(has_folder_of_its_own, pins))
    return Part(stage=stage, pins=tuple(pin for pin in pins if pin not in rest), rest=rest)
