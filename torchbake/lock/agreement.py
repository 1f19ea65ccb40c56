"""Check that a lock fits its row of the matrix, by the lock alone. Pure."""

from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchbake.errors import LockError
from torchbake.lock.companions import COMPANIONS
from torchbake.lock.lockfile import Lock, superfluous
from torchbake.matrix.spec import ImageSpec

# Wheels that exist for the CPU and for CUDA under one name and version, told apart by the local version.
BUILT_PER_ACCELERATOR = {"torch", *COMPANIONS}


def requirements_of(spec: ImageSpec) -> tuple[str, ...]:
    return (spec.torch_requirement, *sorted(spec.pip))


def check_agreement(spec: ImageSpec, lock: Lock) -> None:
    """Raise LockError unless torch, packages, accelerator, CUDA and cuDNN fit the row, and each wheel is required."""
    torch = lock.pins.get("torch")
    if torch is None or Version(torch.version).public != str(Version(spec.torch).public):
        raise _disagreement(spec, f"torch {spec.torch}", f"torch {torch.version if torch else 'none'}")
    missing = sorted(names_of(spec.pip) - lock.pins.keys())
    if missing:
        raise _disagreement(spec, missing[0], f"no {missing[0]}")
    _check_accelerator(spec, lock)
    _check_requirements(spec, lock)


def _check_accelerator(spec: ImageSpec, lock: Lock) -> None:
    cpu = spec.accelerator.kind == "cpu"
    for name in sorted(BUILT_PER_ACCELERATOR & lock.pins.keys()):
        version = lock.pins[name].version
        local = Version(version).local or ""
        if cpu and local != "cpu":
            raise _disagreement(spec, f"{name} for the CPU (+cpu)", f"{name} {version}, built for CUDA")
        if not cpu and local and local != f"cu{''.join(map(str, spec.accelerator.version))}":
            raise _disagreement(spec, f"{name} for {spec.accelerator}", f"{name} {version}")
    if cpu:
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
    extra = superfluous(lock, [canonicalize_name(requirement.name) for requirement in requirements])
    if extra:
        raise _disagreement(spec, f"nothing of {extra[0]}", f"{extra[0]}, which no package requires")


def names_of(requirements: Iterable[str]) -> set[str]:
    """Return the packages that requirements name for every platform."""
    parsed = map(Requirement, requirements)
    return {canonicalize_name(requirement.name) for requirement in parsed if not requirement.marker}


def _disagreement(spec: ImageSpec, expected: str, actual: str) -> LockError:
    return LockError(
        f"matrix.yaml:{spec.line}: {spec.id}: the row says {expected}, but the lock holds {actual}.",
        hint="Correct the row's accelerator or torch version, or name an index that has the wheel.",
    )
