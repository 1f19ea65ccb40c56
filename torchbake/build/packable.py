"""Which wheels' layers this machine can pack beside a build, by their names."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from packaging.version import Version

from torchbake.core.paths import TOOLKIT
from torchbake.lock.lockfile import Layer, Lock, Pin
from torchbake.matrix.spec import ImageSpec

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


def packable(spec: ImageSpec, lock: Lock) -> tuple[Part, ...]:
    """What can be packed of an image, by stages: the wheels whose layers need nothing of binutils."""
    return tuple(part for stage in STAGES if (part := _part_of(stage, spec, lock)).pins)


def is_stripped(pin: Pin) -> bool:
    """Whether binutils strips libraries of this wheel, where an image's wheels are trimmed."""
    return _place(pin) in _stripped()


def has_folder_of_its_own(pin: Pin) -> bool:
    """Whether a wheel of NVIDIA's has files beside `nvidia/`: which, only the wheel itself tells."""
    return _place(pin) == "nvidia/cusparselt" and Version(pin.version) < _CUSPARSELT_IN_NVIDIA


def _part_of(stage: Stage, spec: ImageSpec, lock: Lock) -> Part:
    pins = lock.layers[stage.name]
    rest = tuple(pin for pin in pins if (spec.trim and is_stripped(pin)) or has_folder_of_its_own(pin))
    return Part(stage=stage, pins=tuple(pin for pin in pins if pin not in rest), rest=rest)


def _place(pin: Pin) -> str:
    """The folder of a wheel's libraries: `nvidia/cublas` of `nvidia-cublas-cu12`, `triton` of `triton`."""
    return re.sub(r"^nvidia-(.*?)(?:-cu\d+)?$", r"nvidia/\1", pin.name)


@cache
def _stripped() -> frozenset[str]:
    """The folders in which a rule of trim.toml strips libraries."""
    rules = tomllib.loads((TOOLKIT / "layers/trim.toml").read_text())["drop"]
    paths = (path.split("/") for rule in rules if rule.get("to") == "strip" for path in rule["paths"])
    return frozenset("/".join(path[:2] if path[0] == "nvidia" else path[:1]) for path in paths)
