"""The file ``requirements.lock``: its pins, and the layer of each wheel."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torchbake.core.file_format import UPGRADE, why_too_new
from torchbake.core.files import read_text
from torchbake.errors import LockError
from torchbake.lock.companions import COMPANIONS, companions
from torchbake.matrix.added_paths import project_folder
from torchbake.ui.command import Command

LayerName: TypeAlias = Literal["nvidia", "torch", "heavy", "site", "devel"]
LAYERS: tuple[LayerName, ...] = get_args(LayerName)
_BUILD = "build"  # the section of wheels that build a project's packages; no image has them
_OPTIONAL = ("heavy", _BUILD)  # sections that a lock has only if they have pins

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s\\;]+)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
_SECTION = re.compile(r"^# --- layer (\w+)", flags=re.MULTILINE)
# Every torch for CUDA needs one of each: cuBLAS is the first by name, and the runtime is CUDA itself.
_CUDA_WHEELS = tuple(
    f"nvidia-{part}{suffix}" for part in ("cublas", "cuda-runtime") for suffix in ("", "-cu11", "-cu12")
)
_TORCH_WHEELS = {"torch", "triton"}
# Compilers of CUDA's toolkit, and their headers, by their names in PyPI. Other wheels of NVIDIA that torch does not
# need are for Python, such as nvidia-ml-py, or are libraries of another package, such as nvidia-npp.
_COMPILER = re.compile(r"nvidia-(cuda-.+|nvvm|nvfatbin|nvptxcompiler|nvml-dev)")


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One locked wheel. ``via`` are the packages that require it; empty if only the row does."""

    name: str
    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lock:
    """All wheels of an image by layer, and the inputs they were locked from.

    ``packages`` are the folders of a project's own packages, relative to the project, and ``build`` are the wheels that
    build them, which no image has. Builds need the files ``wheels`` of the folder ``wheels/``.
    """

    inputs: str
    layers: Mapping[LayerName, tuple[Pin, ...]]
    packages: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    build: tuple[Pin, ...] = ()

    @property
    def pins(self) -> dict[str, Pin]:
        return {pin.name: pin for layer in LAYERS for pin in self.layers[layer]}

    @property
    def cuda(self) -> str | None:
        """CUDA's exact version, by the wheel of its runtime library; None if there is no such wheel."""
        return self._version("nvidia-cuda-runtime")

    @property
    def cudnn(self) -> str | None:
        return self._version("nvidia-cudnn")

    @property
    def nccl(self) -> str | None:
        return self._version("nvidia-nccl")

    @property
    def pins_to_keep(self) -> tuple[str, ...]:
        """Requirements of the wheels that an image has outside of its venv: torch, NVIDIA's for it, large ones."""
        return tuple(map(_exactly, (*self.layers["torch"], *self.layers["nvidia"], *self.layers["heavy"])))

    @property
    def constraints(self) -> tuple[str, ...]:
        """The lines of an image's constraints file, for the wheels outside of its venv and the companions of its torch.

        Companions of its torch that are not locked have a line too, for users who install them later. A CPU image
        refuses libraries of CUDA.
        """
        pins = self.pins
        outside = (_strictly(pins["torch"]), *(line for line in self.pins_to_keep if not line.startswith("torch==")))
        locked = tuple(_exactly(pins[name]) for name in sorted(COMPANIONS & pins.keys()))
        absent = (line for line in companions(pins["torch"].version) if Requirement(line).name not in pins)
        refused = () if self.layers["nvidia"] else tuple(f"{name}<0" for name in _CUDA_WHEELS)
        return (*outside, *sorted((*locked, *absent)), *refused)

    def _version(self, stem: str) -> str | None:
        matching = (pin.version for name, pin in self.pins.items() if re.fullmatch(rf"{stem}(-cu\d+)?", name))
        return next(matching, None)


def parse_pins(text: str) -> tuple[Pin, ...]:
    """Parse the pins in the output of uv or pip-compile, in its order."""
    pins: list[Pin] = []
    for block in re.split(r"\n(?=\S)", text):
        match = _PIN.match(block)
        if match:
            via = re.findall(r"^\s+#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)\s*$", block, flags=re.MULTILINE)
            pins.append(
                Pin(
                    name=canonicalize_name(match["name"]),
                    version=match["version"],
                    hashes=tuple(sorted(_HASH.findall(block))),
                    via=tuple(canonicalize_name(name) for name in via if name != "via"),
                )
            )
    return tuple(pins)


def assign_layers(pins: Iterable[Pin], heavy: Collection[str] = ()) -> dict[LayerName, tuple[Pin, ...]]:
    """Assign each wheel to a layer; ``heavy`` are the names of large wheels, which get a layer each.

    All images with the same NVIDIA libraries of torch share their layers. NVIDIA's compilers, which only the row
    requires, are in ``devel``, so that images without them still share the others.
    """
    pins = tuple(pins)
    needs = needed_by({"torch"}, pins)
    layers: dict[LayerName, list[Pin]] = {layer: [] for layer in LAYERS}
    for pin in sorted(pins, key=lambda pin: pin.name):
        layer = _layer(pin, needs)
        layers["heavy" if layer == "site" and pin.name in heavy else layer].append(pin)
    return {layer: tuple(layer_pins) for layer, layer_pins in layers.items()}


def format_lock(lock: Lock) -> str:
    """Format a lock's file: a header, then the pins by layer."""
    lines = [
        "# Locked by torchbake; `nox -s lock` makes it anew. pip and uv install it as it is.",
        f"# inputs: {lock.inputs}",
        *([f"# packages: {' '.join(lock.packages)}"] if lock.packages else []),
        *([f"# wheels: {' '.join(lock.wheels)}"] if lock.wheels else []),
    ]
    for layer, pins in (*lock.layers.items(), (_BUILD, lock.build)):
        if layer in _OPTIONAL and not pins:
            continue
        lines += ["#", f"# --- layer {layer}"]
        for pin in pins:
            lines.append(" \\\n".join([_exactly(pin), *(f"    --hash={digest}" for digest in pin.hashes)]))
            lines += [f"    # via {name}" for name in pin.via]
    return "\n".join(lines) + "\n"


def _strictly(pin: Pin) -> str:
    """Return the requirement of one build of a version: `==2.10.0` would also accept 2.10.0+cpu."""
    return _exactly(pin) if "+" in pin.version else f"{pin.name}==={pin.version}"


def _exactly(pin: Pin) -> str:
    return f"{pin.name}=={pin.version}"


def parse_lock(text: str, name: str) -> Lock:
    """Parse a lock. Raises LockError if torchbake did not write exactly this text; ``name`` is for the message."""
    header = dict(re.findall(r"^# (format|inputs|packages|wheels): (.*)$", text, flags=re.MULTILINE))
    if newer := why_too_new("requirements.lock", header.get("format")):
        raise LockError(f"{name}: {newer}.", hint=UPGRADE)
    sections = {
        match[1]: parse_pins(section)
        for section in re.split(r"^(?=# --- layer )", text, flags=re.MULTILINE)[1:]
        if (match := _SECTION.match(section))
    }
    lock = Lock(
        inputs=header.get("inputs", ""),
        layers={layer: sections.get(layer, ()) for layer in LAYERS},
        packages=tuple(header.get("packages", "").split()),
        wheels=tuple(header.get("wheels", "").split()),
        build=sections.get(_BUILD, ()),
    )
    damage = _damage(text, lock)
    if damage:
        raise LockError(f"{name}: {damage}.", hint=f"Make it again: {Command('lock', 'ID')}.")
    return lock


def read_lock_text(path: Path, selector: str) -> str:
    """Read a lock's text. Raises LockError if it cannot be read; the message names the ``selector`` to make it."""
    hint = f"Make it: {Command('lock', selector)}"
    try:
        return read_text(path)
    except FileNotFoundError:
        raise LockError(f"{path}: there is no lock.", hint=hint) from None
    except UnicodeDecodeError as error:
        raise LockError(f"{path}: is not UTF-8 text (byte {error.start}).", hint=hint) from None
    except OSError as error:
        raise LockError(f"{path}: {error.strerror}.", hint=f"Correct it, or remove it. {hint}") from None


def _damage(text: str, lock: Lock) -> str:
    if not lock.inputs or not lock.pins:
        return "torchbake did not write it"
    unhashed = [pin.name for pin in (*lock.pins.values(), *lock.build) if not pin.hashes]
    if unhashed:
        return f"{unhashed[0]} has no hash"
    required = [layer for layer in LAYERS if layer not in _OPTIONAL]
    sections = [name for name in re.findall(_SECTION, text) if name not in _OPTIONAL]
    whole = sections == required and text.endswith("\n") and not text.endswith("\\\n")
    return _foreign(text, lock) if whole else "it is not whole: its end, or a layer, is missing"


def _foreign(text: str, lock: Lock) -> str:
    """Describe the first part of a text that torchbake does not write; empty if there is none.

    Installers obey every line of a lock.
    """
    canonical = format_lock(lock)
    if text != canonical:
        pairs = enumerate(zip_longest(text.split("\n"), canonical.split("\n")), 1)
        number, (line, _) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
        return f"line {number} was not written by torchbake: {line!r}"
    pins = [pin for layer in LAYERS for pin in lock.layers[layer]]
    odd = [pin for pin in (*pins, *lock.build) if not _is_version(pin.version)]
    if odd:
        return f"{odd[0].name} has no version but {odd[0].version!r}"
    if wrong := next(filter(None, map(_why_no_folder, lock.packages)), ""):
        return wrong
    if len(lock.pins) != len(pins):
        return "it has a package twice"
    for name in lock.wheels:
        if wheel_package(name) not in lock.pins:
            return f"{name!r} is no wheel of its packages"
    heavy = {pin.name for pin in lock.layers["heavy"]}
    return "" if assign_layers(pins, heavy) == lock.layers else "a package is in a layer where it does not belong"


def _why_no_folder(path: str) -> str:
    """Return why a path is no folder of a package; empty if it may be. A Dockerfile names it in a command."""
    try:
        project_folder(path)
    except ValueError as error:
        return str(error)
    return ""


def wheel_package(name: str) -> str:
    """Return the package of a wheel by its file name; empty if it is not the file name of a wheel."""
    try:
        return "" if "/" in name else parse_wheel_filename(name)[0]
    except InvalidWheelFilename:
        return ""


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def superfluous(lock: Lock, roots: Iterable[str]) -> list[str]:
    """Return the packages of a lock that neither ``roots`` nor their dependencies require."""
    pins = lock.pins
    return sorted(pins.keys() - needed_by(pins.keys() & roots, pins.values()))


def _layer(pin: Pin, names: set[str]) -> LayerName:
    if pin.name in _TORCH_WHEELS:
        return "torch"
    if pin.name.startswith("nvidia-") and pin.name in names:
        return "nvidia"
    return "devel" if _COMPILER.fullmatch(pin.name) else "site"


def needed_by(roots: Iterable[str], pins: Collection[Pin]) -> set[str]:
    """Return the names of packages and of all their dependencies."""
    needs = {*roots}
    while more := {pin.name for pin in pins if needs & set(pin.via)} - needs:
        needs |= more
    return needs
