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
class ImageSpec:
    """A PyTorch image. ``apt`` and ``pip`` hold additions only, placeholders already filled in.

    ``indexes`` have wheels of its accelerator that the host's pip may not find. ``waivers`` are checks that it may
    fail, each with the reason.
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
    repository: str
    source: str
    licenses: str
    line: int

    kind = "pytorch"
    template = "pytorch"
    has_torch = True
    from_scratch = False

    @property
    def id(self) -> str:
        """``2.10.0-cuda12.8-cudnn9-runtime-debian12``; the CPU has no cuDNN part."""
        parts = (self.torch, str(self.accelerator), f"cudnn{self.cudnn}", self.flavor, self.base.name)
        return "-".join(part for part in parts if part != "cudnnNone")

    @property
    def own_tag(self) -> str:
        """The most specific of its tags."""
        return self.id

    @property
    def title(self) -> str:
        """What it has in common with the images that it stands with in a list, and most layers with them."""
        cuda = self.accelerator.cuda
        return f"PyTorch {self.torch} on CUDA {cuda}" if cuda else f"PyTorch {self.torch} on the CPU"

    @property
    def versions(self) -> dict[str, str | None]:
        """Those that its row tells; None: it has none of that."""
        cuda = self.accelerator.cuda
        return {"torch": self.torch, "cuda": cuda, "cudnn": self.cudnn, "python": self.base.python}

    @property
    def family(self) -> str:
        """``cuda`` for an image that can use a GPU, else ``cpu``."""
        return self.accelerator.kind

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
    """An init container image, such as ``volume-permissions``; its id is its name, and its template's.

    It is made from scratch, and has neither torch nor a lock; of what a PyTorch image has of that it says so.
    """

    id: str
    release: str
    base: BaseSpec
    repository: str
    source: str
    licenses: str
    line: int
    waivers: tuple[tuple[str, str], ...] = ()

    kind = "init"
    family = "cpu"
    has_torch = False
    from_scratch = True
    flavor = None
    title = "Init containers"

    @property
    def template(self) -> str:
        return self.id

    @property
    def own_tag(self) -> str:
        """The most specific of its tags."""
        return self.release

    @property
    def versions(self) -> dict[str, str | None]:
        return {}

    @property
    def version(self) -> Version:
        return Version(self.release)


Spec: TypeAlias = ImageSpec | InitSpec


def pytorch_of(specs: Iterable[Spec]) -> list[ImageSpec]:
    """The PyTorch images among these."""
    return [spec for spec in specs if isinstance(spec, ImageSpec)]


def bases_of(specs: Iterable[Spec]) -> list[BaseSpec]:
    """The bases that images stand on, each once."""
    return list({spec.base.name: spec.base for spec in specs}.values())
