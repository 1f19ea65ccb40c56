"""Does a lock agree with the row that it is for? As far as the lock alone can tell. Pure."""

from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchbake.errors import LockError
from torchbake.lock.companions import COMPANIONS
from torchbake.lock.lockfile import Lock, Pin, unasked
from torchbake.matrix.spec import ImageSpec

# Wheels that exist for the CPU and for CUDA under one name and version, told apart by the local version.
BUILT_PER_ACCELERATOR = {"torch", *COMPANIONS}


def requirements_of(spec: ImageSpec) -> tuple[str, ...]:
    return (spec.torch_requirement, *sorted(spec.pip))


def check_agreement(spec: ImageSpec, lock: Lock) -> None:
    """Raise LockError unless the wheels are what the row says: torch, its packages, accelerator, CUDA, cuDNN.

    As far as the lock alone can tell: nothing is in it that nothing else in it, or the row, needs.
    """
    torch = lock.pins.get("torch")
    if torch is None or Version(torch.version).public != str(Version(spec.torch).public):
        raise _disagreement(spec, f"torch {spec.torch}", f"torch {torch.version if torch else 'none'}")
    missing = sorted(names_of(spec.pip) - lock.pins.keys())
    if missing:
        raise _disagreement(spec, missing[0], f"no {missing[0]}")
    _check_accelerator(spec, lock)
    _check_requirements(spec, lock)


def _check_accelerator(spec: ImageSpec, lock: Lock) -> None:
    for name in sorted(BUILT_PER_ACCELERATOR & lock.pins.keys()):
        _check_local_version(spec, lock.pins[name])
    if spec.accelerator.kind == "cpu":
        if lock.cuda:
            raise _disagreement(spec, "the CPU", f"wheels of CUDA {lock.cuda}")
        return
    if lock.cuda is None or Version(lock.cuda).release[:2] != spec.accelerator.version:
        raise _disagreement(spec, f"cuda{spec.accelerator.cuda}", f"wheels of CUDA {lock.cuda or 'none'}")
    if lock.cudnn is None or lock.cudnn.split(".")[0] != spec.cudnn:
        raise _disagreement(spec, f"cuDNN {spec.cudnn}", f"cuDNN {lock.cudnn or 'none'}")


def _check_requirements(spec: ImageSpec, lock: Lock) -> None:
    requirements = [Requirement(text) for text in requirements_of(spec)]
    for requirement in requirements:
        pin = lock.pins.get(canonicalize_name(requirement.name))
        if pin and not requirement.marker and not requirement.specifier.contains(pin.version, prereleases=True):
            raise _disagreement(spec, str(requirement), f"{pin.name} {pin.version}")
    foreign = unasked(lock, [canonicalize_name(requirement.name) for requirement in requirements])
    if foreign:
        raise _disagreement(spec, f"nothing of {foreign[0]}", f"{foreign[0]}, which nothing asks for")


def names_of(asked: Iterable[str]) -> set[str]:
    """The packages that are asked for on every platform."""
    requirements = [Requirement(text) for text in asked]
    return {canonicalize_name(requirement.name) for requirement in requirements if not requirement.marker}


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
