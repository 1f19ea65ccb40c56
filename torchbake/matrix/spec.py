"""One image to build, known everywhere by its id."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from packaging.version import Version

from torchbake.matrix.accelerator import Accelerator

VENV = "/opt/venv"
TOOLBOX = "/opt/torchbake"  # where an image holds entrypoints/pytorch


@dataclass(frozen=True, kw_only=True)
class BaseSpec:
    """A base: its name in the matrix, its image reference, Debian suite and Python (``3.11``)."""

    name: str
    image: str
    suite: str
    python: str


@dataclass(frozen=True, kw_only=True)
class Own:
    """What a user adds to an image beside packages: variables and labels, by name; certificates beside the matrix."""

    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    certificates: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """A PyTorch image. ``apt`` and ``pip`` hold additions only, placeholders already filled in.

    ``indexes`` have wheels of its accelerator that the host's pip may not find. ``waivers`` are checks that it may
    fail, each with the reason. ``own`` is what the user adds beside packages.
    """

    torch: str
    accelerator: Accelerator
    cudnn: str | None
    base: BaseSpec
    flavor: str
    headers: bool
    trim: bool
    apt: tuple[str, ...]
    pip: tuple[str, ...]
    indexes: tuple[str, ...] = ()
    waivers: tuple[tuple[str, str], ...] = ()
    own: Own = Own()
    repository: str
    source: str
    licenses: str
    line: int

    kind = "pytorch"

    @property
    def id(self) -> str:
        """``2.10.0-cuda12.8-cudnn9-runtime-debian12``; the CPU has no cuDNN part."""
        parts = (self.torch, str(self.accelerator), f"cudnn{self.cudnn}", self.flavor, self.base.name)
        return "-".join(part for part in parts if part != "cudnnNone")

    @property
    def version(self) -> Version:
        """The torch version, ordered as PEP 440 orders it."""
        return Version(self.torch)

    @property
    def torch_requirement(self) -> str:
        """What the lock asks for. The CPU's wheel must say so; a CUDA one has no local version on PyPI."""
        return f"torch=={self.torch}+cpu" if self.accelerator.kind == "cpu" else f"torch=={self.torch}"


@dataclass(frozen=True, kw_only=True)
class InitSpec:
    """An init container image, such as ``volume-permissions``; its id is its name. Of ``own`` it has labels."""

    id: str
    release: str
    base: BaseSpec
    repository: str
    source: str
    licenses: str
    line: int
    waivers: tuple[tuple[str, str], ...] = ()
    own: Own = Own()

    kind = "init"

    @property
    def version(self) -> Version:
        return Version(self.release)


Spec: TypeAlias = ImageSpec | InitSpec


def bases_of(specs: Iterable[Spec]) -> list[BaseSpec]:
    """The bases that images stand on, each once."""
    return list({spec.base.name: spec.base for spec in specs}.values())
