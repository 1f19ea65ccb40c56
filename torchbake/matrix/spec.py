"""One image to build, known everywhere by its id."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from packaging.version import Version

from torchbake.matrix.accelerator import Accelerator

VENV = "/opt/venv"
SIZES = ("small", "large")  # of images, for those who hand them out to machines
TOOLBOX = "/opt/torchbake"  # where an image holds entrypoints/pytorch


@dataclass(frozen=True, kw_only=True)
class BaseSpec:
    """A base: its name in the matrix, its image reference, the suite of its packages and its Python (``3.11``).

    ``interpreter`` is that Python where it is not the suite's own: a path in the image, or a package of the suite.
    """

    name: str
    image: str
    suite: str
    python: str
    distribution: str = "debian"
    interpreter: str = ""

    @property
    def brings_python(self) -> bool:
        """Whether its Python is in its image, and in no package of the suite."""
        return self.interpreter.startswith("/")

    @property
    def python_command(self) -> str:
        """Its Python, as a step of a build runs it."""
        return self.interpreter or "python3"

    @property
    def python_package(self) -> str:
        """The package that its Python is in; empty where it is in none."""
        return "" if self.brings_python else self.python_command


@dataclass(frozen=True, kw_only=True)
class User:
    """Who an image runs as. Any other uid of group 0 may take its place."""

    name: str = "torch"
    uid: int = 1001

    @property
    def home(self) -> str:
        return f"/home/{self.name}"

    @property
    def workdir(self) -> str:
        return "/app"


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """A file below the matrix's folder, or a folder whose path ends in a slash, that goes into an image.

    ``owner`` is root, user, or empty: the user where all is the user's. ``mode`` is octal, or empty: as the file's.
    """

    source: str
    target: str
    owner: str = ""
    mode: str = ""

    def uid(self, user: User) -> int:
        """Whom it belongs to; its group is 0."""
        at_home = any(f"{self.target}/".startswith(f"{folder}/") for folder in (user.home, user.workdir))
        return user.uid if self.owner == "user" or (at_home and not self.owner) else 0


@dataclass(frozen=True, kw_only=True)
class Own:
    """What is a user's own in an image beside packages: variables and labels, by name; files; who it runs as."""

    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    certificates: tuple[str, ...] = ()
    files: tuple[OwnFile, ...] = ()
    user: User = User()


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """A PyTorch image. ``apt`` and ``pip`` hold additions only, placeholders already filled in.

    ``apt_of_all`` and ``pip_of_all`` are those that each image of the matrix has: the former are installed below the
    wheels, the latter in a layer that many images share. ``constraints``: pip and uv inside it are told to keep torch.
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
    apt_of_all: tuple[str, ...] = ()
    pip_of_all: tuple[str, ...] = ()
    constraints: bool = True
    indexes: tuple[str, ...] = ()
    waivers: tuple[tuple[str, str], ...] = ()
    own: Own = Own()
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
    def size(self) -> str:
        """What a machine must have to build it, in a word: docs/ci.md has the figures."""
        return "small" if self.family == "cpu" else "large"

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
    ``own`` has labels and a uid.
    """

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
    family = "cpu"
    has_torch = False
    from_scratch = True
    flavor = None
    size = "small"
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
