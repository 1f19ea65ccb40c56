"""Locking an image: exact wheels, checked against what its row promises."""

from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchbake.errors import LockError
from torchbake.lockfile import Lock, Pin, assign_layers, format_lock, parse_lock, parse_pins
from torchbake.mirrors import PipConfig
from torchbake.resolver import PLATFORM, Question, resolve
from torchbake.spec import ImageSpec

# Wheels that exist for the CPU and for CUDA under one name and version, told apart by the local version.
_BUILT_PER_ACCELERATOR = {"torch", "torchvision", "torchaudio"}


def lock_path(root: Path, spec: ImageSpec) -> Path:
    return root / "images" / spec.id / "requirements.lock"


def inputs_of(spec: ImageSpec) -> str:
    """What a lock depends on, on one line: a lock whose header says otherwise is out of date."""
    return "; ".join((" ".join(requirements_of(spec)), f"python {spec.base.python}", PLATFORM))


def requirements_of(spec: ImageSpec) -> tuple[str, ...]:
    return (spec.torch_requirement, *sorted(spec.pip))


def read_lock(root: Path, spec: ImageSpec) -> Lock:
    """The committed lock of an image. Raises LockError: missing, unreadable, out of date, or disagreeing."""
    path = lock_path(root, spec)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LockError(f"{path}: there is no lock.", hint=f"Make it: nox -s lock -- {spec.id}") from None
    lock = parse_lock(text, str(path))
    if lock.inputs != inputs_of(spec):
        raise LockError(
            f"{path}: is for other inputs.\n  locked: {lock.inputs}\n  matrix: {inputs_of(spec)}",
            hint=f"Make it anew: nox -s lock -- {spec.id}",
        )
    check_agreement(spec, lock)
    return lock


def make_lock(spec: ImageSpec, config: PipConfig, *, previous: str = "", upgrade: bool = False) -> Lock:
    """Resolve an image's wheels. Pins of ``previous`` are kept where they fit, unless ``upgrade``.

    Raises LockError when nothing fits, or when the wheels disagree with the row.
    """
    question = Question(
        requirements=requirements_of(spec), python=spec.base.python, previous="" if upgrade else previous
    )
    pins = _resolve_for(spec, question, config)
    if not upgrade:
        pins = _keep_hashes(pins, parse_pins(previous))
    lock = Lock(inputs=inputs_of(spec), layers=assign_layers(pins))
    check_agreement(spec, lock)
    return lock


def format_checked(spec: ImageSpec, lock: Lock) -> str:
    """The lock's text, read back once to be sure that it says the same."""
    text = format_lock(lock)
    if parse_lock(text, spec.id) != lock:
        raise LockError(f"{spec.id}: the lock does not survive being written.", hint="Please report this.")
    return text


def check_agreement(spec: ImageSpec, lock: Lock) -> None:
    """Raise LockError unless the wheels are what the row says: torch, accelerator, CUDA, cuDNN."""
    torch = lock.pins.get("torch")
    if torch is None or Version(torch.version).public != str(Version(spec.torch).public):
        raise _disagreement(spec, f"torch {spec.torch}", f"torch {torch.version if torch else 'none'}")
    missing = sorted(_names(spec) - lock.pins.keys())
    if missing:
        raise _disagreement(spec, missing[0], f"no {missing[0]}")
    for name in sorted(_BUILT_PER_ACCELERATOR & lock.pins.keys()):
        _check_local_version(spec, lock.pins[name])
    if spec.accelerator.kind == "cpu":
        if lock.cuda:
            raise _disagreement(spec, "the CPU", f"wheels of CUDA {lock.cuda}")
        return
    if lock.cuda is None or Version(lock.cuda).release[:2] != spec.accelerator.version:
        raise _disagreement(spec, f"cuda{spec.accelerator.cuda}", f"wheels of CUDA {lock.cuda or 'none'}")
    if lock.cudnn is None or lock.cudnn.split(".")[0] != spec.cudnn:
        raise _disagreement(spec, f"cuDNN {spec.cudnn}", f"cuDNN {lock.cudnn or 'none'}")


def _names(spec: ImageSpec) -> set[str]:
    """What the row itself asks for, on every platform."""
    requirements = [Requirement(text) for text in spec.pip]
    return {canonicalize_name(requirement.name) for requirement in requirements if not requirement.marker}


def _resolve_for(spec: ImageSpec, question: Question, config: PipConfig) -> tuple[Pin, ...]:
    """Resolve; on a CUDA row, ask again without each CPU wheel that turned up.

    ``2.13.0+cpu`` sorts above ``2.13.0``, so a wheel folder with CPU wheels would win every CUDA row.
    """
    exclude: list[str] = []
    while True:
        pins = resolve(question, config, exclude=exclude)
        foreign = [pin for pin in pins if spec.accelerator.kind == "cuda" and pin.version.endswith("+cpu")]
        if not foreign:
            return pins
        exclude += [f"{pin.name}!={pin.version}" for pin in foreign]


def _check_local_version(spec: ImageSpec, pin: Pin) -> None:
    local = Version(pin.version).local or ""
    if spec.accelerator.kind == "cpu":
        if local != "cpu":
            raise _disagreement(spec, f"{pin.name} for the CPU (+cpu)", f"{pin.name} {pin.version}, built for CUDA")
    elif local and local != f"cu{''.join(map(str, spec.accelerator.version))}":
        raise _disagreement(spec, f"{pin.name} for {spec.accelerator}", f"{pin.name} {pin.version}")


def _disagreement(spec: ImageSpec, promised: str, found: str) -> LockError:
    return LockError(
        f"matrix.yaml:{spec.line}: {spec.id}: the row says {promised}, but the lock holds {found}.",
        hint="Correct the row's accelerator or torch version; or the index does not have that wheel.",
    )


def _keep_hashes(pins: tuple[Pin, ...], previous: tuple[Pin, ...]) -> tuple[Pin, ...]:
    """An index may gain files of a version that is locked already; an unchanged pin keeps its hashes,

    as long as one of them is still served, so that locking again changes nothing.
    """
    before = {(pin.name, pin.version): pin.hashes for pin in previous}
    kept = []
    for pin in pins:
        hashes = before.get((pin.name, pin.version), ())
        same = bool(set(hashes) & set(pin.hashes))
        kept.append(Pin(name=pin.name, version=pin.version, hashes=hashes if same else pin.hashes, via=pin.via))
    return tuple(kept)
