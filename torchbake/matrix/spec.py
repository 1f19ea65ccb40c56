"""The specification of an image, which is identified by its id."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from packaging.version import Version

from torchbake.matrix.accelerator import Accelerator

VENV = "/opt/venv"
AMD64, ARM64 = "linux/amd64", "linux/arm64"  # platforms, as OCI names them
PLATFORMS = (AMD64, ARM64)
MACHINES = {AMD64: "x86_64", ARM64: "aarch64"}  # as the kernel and wheels name them
NATIVE = "native"  # the stage with the base on the platform of the machine that builds
SIZES = ("small", "large")  # of images, for the choice of a machine that builds them
TOOLBOX = "/opt/torchbake"  # the folder of entrypoints/pytorch in an image


@dataclass(frozen=True, kw_only=True)
class BaseSpec:
    """A base: its name in the matrix, its image reference, the suite of its packages and its Python (``3.11``).

    A base of each ``platform`` has its own record and its own lock of Debian packages.
    ``interpreter`` is empty if the Python is the suite's own. Else it is a path in the image or a package of the suite.
    ``snapshot`` is the address of a mirror of one day, or empty.
    ``image`` may be that of the lock of the bases; then ``native_image`` is the image of this base for amd64.
    """

    name: str
    image: str
    suite: str
    python: str
    distribution: str = "debian"
    interpreter: str = ""
    snapshot: str = ""
    platform: str = AMD64
    native_image: str = ""

    @property
    def id(self) -> str:
        """The name, and ``-arm64`` for that platform."""
        return self.name + suffix_of(self.platform)

    @property
    def architecture(self) -> str:
        """The architecture, as Debian and OCI name it: ``amd64`` or ``arm64``."""
        return self.platform.partition("/")[2]

    @property
    def image_name(self) -> str:
        """The image without its digest."""
        return self.image.partition("@")[0]

    @property
    def digest(self) -> str:
        """The digest of the image; empty if it is named by a tag alone."""
        return self.image.partition("@")[2]

    @property
    def brings_python(self) -> bool:
        """True if the Python belongs to the base's image, and to no package of the suite."""
        return self.interpreter.startswith("/")

    @property
    def python_command(self) -> str:
        """The command of the Python in a build."""
        return self.interpreter or "python3"

    @property
    def python_package(self) -> str:
        """The package of the Python; empty if the image has it without a package."""
        return "" if self.brings_python else self.python_command


@dataclass(frozen=True, kw_only=True)
class User:
    """The user of an image. Any other uid of group 0 may run the image too."""

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
    """A file of the matrix's folder for an image, or a folder, whose path ends in a slash.

    ``owner`` is root, user, or empty for the default of the target's folder. ``mode`` is octal, or empty for the
    default of the file.
    """

    source: str
    target: str
    owner: str = ""
    mode: str = ""

    def uid(self, user: User) -> int:
        """Return the owner in the image; the group is 0."""
        at_home = any(f"{self.target}/".startswith(f"{folder}/") for folder in (user.home, user.workdir))
        return user.uid if self.owner == "user" or (at_home and not self.owner) else 0


@dataclass(frozen=True, kw_only=True)
class Additions:
    """Additions of the matrix to an image besides packages: variables and labels, by name; files; the user."""

    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    certificates: tuple[str, ...] = ()
    files: tuple[OwnFile, ...] = ()
    user: User = User()


@dataclass(frozen=True, kw_only=True)
class ProjectSpec:
    """A project whose lock decides the wheels of an image.

    ``folder`` is relative to the matrix's folder, and the paths ``lock`` and ``files`` are relative to it. The lock is
    a ``uv.lock``, a ``pylock.toml``, a requirements file, or ``pyproject.toml`` if nothing is locked. The image's own
    layer is made of the files. ``groups`` and ``extras`` are those of ``pyproject.toml`` that the image gets. Of a uv
    workspace, ``package`` is the member for the image; if it is empty, the root is meant.
    """

    folder: str
    lock: str
    package: str = ""
    groups: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def lock_path(self) -> str:
        """The path of the lock below the matrix's folder."""
        return self.lock if self.folder == "." else f"{self.folder}/{self.lock}"


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """A PyTorch image.

    ``apt`` and ``pip`` are packages besides torch's own, without placeholders.
    Each image of the matrix has the packages of ``apt_of_all``, which are installed below the wheels, and of
    ``pip_of_all``, which are in a layer that many images share.
    If ``constraints`` is true, pip and uv in the image keep torch. ``indexes`` have wheels of its accelerator.
    With a ``compiler``, torch.compile works in the image; with ``headers``, extensions can be built there too.
    Images that differ by their ``platform`` alone share their tags.
    ``waivers`` are checks that it may fail, each with the reason. With a ``project``, its lock decides all wheels.
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
    compiler: bool = True
    indexes: tuple[str, ...] = ()
    waivers: tuple[tuple[str, str], ...] = ()
    own: Additions = Additions()
    project: ProjectSpec | None = None
    repository: str
    source: str
    licenses: str
    line: int
    platform: str = AMD64

    kind = "pytorch"
    template = "pytorch"
    has_torch = True
    from_scratch = False

    @property
    def id(self) -> str:
        """The id, such as ``2.10.0-cuda12.8-cudnn9-runtime-debian12``: the tag, and ``-arm64`` for that platform."""
        return self.own_tag + suffix_of(self.platform)

    @property
    def own_tag(self) -> str:
        """The most specific of its tags; for the CPU without cuDNN."""
        parts = (self.torch, str(self.accelerator), f"cudnn{self.cudnn}", self.flavor, self.base.name)
        return "-".join(part for part in parts if part != "cudnnNone")

    @property
    def interpreter_stage(self) -> str:
        """The stage of the Dockerfile with the Python that installs wheels and compiles bytecode.

        For arm64 it is on the platform of the machine that builds: a wheel is only unpacked, bytecode is the same on
        all platforms, and emulated programs are slow.
        """
        return "interpreter" if self.platform == AMD64 else f"{NATIVE}-interpreter"

    @property
    def title(self) -> str:
        """The heading of a list of images with the same torch and accelerator, which share most layers."""
        cuda = self.accelerator.cuda
        return f"PyTorch {self.torch} on CUDA {cuda}" if cuda else f"PyTorch {self.torch} on the CPU"

    @property
    def versions(self) -> dict[str, str | None]:
        """The versions of the row; None for software that the image does not have."""
        cuda = self.accelerator.cuda
        return {"torch": self.torch, "cuda": cuda, "cudnn": self.cudnn, "python": self.base.python}

    @property
    def family(self) -> str:
        """``cuda`` for an image that can use a GPU, else ``cpu``."""
        return self.accelerator.kind

    @property
    def size(self) -> str:
        """The size of the machine that builds the image: docs/how-to/ci.md has the figures."""
        return "small" if self.family == "cpu" else "large"

    @property
    def version(self) -> Version:
        """The torch version, ordered as PEP 440 orders it."""
        return Version(self.torch)

    @property
    def torch_requirement(self) -> str:
        """The requirement of the lock. CPU wheels have a local version; CUDA wheels have none on PyPI.

        For arm64 PyPI's wheel of torch 2.10 and earlier is for the CPU, so a lock may have either.
        """
        local = "+cpu" if self.accelerator.kind == "cpu" and self.platform == AMD64 else ""
        return f"torch=={self.torch}{local}"


@dataclass(frozen=True, kw_only=True)
class InitSpec:
    """An init container image, such as ``volume-permissions``. Name and template are the same text.

    The image is built from scratch, without torch and without a lock. ``own`` has only labels and a uid.
    """

    name: str
    release: str
    base: BaseSpec
    repository: str
    source: str
    licenses: str
    line: int
    waivers: tuple[tuple[str, str], ...] = ()
    own: Additions = Additions()
    platform: str = AMD64

    kind = "init"
    family = "cpu"
    has_torch = False
    from_scratch = True
    flavor = None
    size = "small"
    title = "Init containers"

    @property
    def id(self) -> str:
        """The name, and ``-arm64`` for that platform."""
        return self.name + suffix_of(self.platform)

    @property
    def template(self) -> str:
        return self.name

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


def suffix_of(platform: str) -> str:
    """Return the end of an id for a platform: empty for amd64, else ``-arm64``."""
    return "" if platform == AMD64 else f"-{platform.partition('/')[2].replace('/', '')}"


def pytorch_of(specs: Iterable[Spec]) -> list[ImageSpec]:
    """Return the PyTorch images."""
    return [spec for spec in specs if isinstance(spec, ImageSpec)]


def bases_of(specs: Iterable[Spec]) -> list[BaseSpec]:
    """Return the bases of images, each once for a platform."""
    return list({spec.base.id: spec.base for spec in specs}.values())
