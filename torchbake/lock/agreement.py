"""Check that a lock fits its row of the matrix, by the lock alone. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchbake.errors import LockError
from torchbake.lock.companions import COMPANIONS
from torchbake.lock.lockfile import Lock, superfluous
from torchbake.matrix.spec import AMD64, ImageSpec

# Wheels that exist for the CPU and for CUDA under one name and version, told apart by the local version.
BUILT_PER_ACCELERATOR = {"torch", *COMPANIONS}


def requirements_of(spec: ImageSpec) -> tuple[str, ...]:
    return (spec.torch_requirement, *sorted(spec.pip))


def check_agreement(spec: ImageSpec, lock: Lock, places: Mapping[str, str] | None = None) -> None:
    """Raise LockError unless torch, packages, accelerator, CUDA and cuDNN fit the row, and each wheel is required.

    ``places`` are the places of packages in a project's lock, for messages; "" is the lock's own. A project requires
    its packages itself.
    """
    check = _Agreement(spec=spec, lock=lock, places=places or {})
    check.torch()
    check.accelerator()
    check.requirements()
    if spec.project is None:
        check.roots()


@dataclass(frozen=True, kw_only=True)
class _Agreement:
    spec: ImageSpec
    lock: Lock
    places: Mapping[str, str]

    def torch(self) -> None:
        spec, torch = self.spec, self.lock.pins.get("torch")
        if torch is None or Version(torch.version).public != str(Version(spec.torch).public):
            raise self._differs("torch", f"torch {spec.torch}", f"torch {torch.version if torch else 'none'}")
        for name in sorted(names_of(spec.pip) - self.lock.pins.keys()):
            raise self._differs(name, name, f"no {name}", hint=self._add(name))

    def accelerator(self) -> None:
        spec, lock = self.spec, self.lock
        cpu = spec.accelerator.kind == "cpu"
        for name in sorted(BUILT_PER_ACCELERATOR & lock.pins.keys()):
            version = lock.pins[name].version
            local = Version(version).local or ""
            if cpu and local != "cpu" and (local or spec.platform == AMD64):
                raise self._differs(name, f"{name} for the CPU (+cpu)", f"{name} {version}, built for CUDA")
            if not cpu and local and local != f"cu{''.join(map(str, spec.accelerator.version))}":
                raise self._differs(name, f"{name} for {spec.accelerator}", f"{name} {version}")
        if cpu:
            if lock.cuda:
                raise self._differs(_like(lock, "nvidia-cuda-runtime"), "the CPU", f"wheels of CUDA {lock.cuda}")
            return
        if lock.cuda is None or Version(lock.cuda).release[:2] != spec.accelerator.version:
            name = _like(lock, "nvidia-cuda-runtime")
            raise self._differs(name, f"cuda{spec.accelerator.cuda}", f"wheels of CUDA {lock.cuda or 'none'}")
        if lock.cudnn is None or lock.cudnn.split(".")[0] != spec.cudnn:
            raise self._differs(_like(lock, "nvidia-cudnn"), f"cuDNN {spec.cudnn}", f"cuDNN {lock.cudnn or 'none'}")

    def requirements(self) -> None:
        for requirement in map(Requirement, requirements_of(self.spec)):
            pin = self.lock.pins.get(canonicalize_name(requirement.name))
            if pin and not requirement.marker and not requirement.specifier.contains(pin.version, prereleases=True):
                hint = self._add(str(requirement)) if pin.name != "torch" else ""
                raise self._differs(pin.name, str(requirement), f"{pin.name} {pin.version}", hint=hint)

    def roots(self) -> None:
        roots = [canonicalize_name(Requirement(text).name) for text in requirements_of(self.spec)]
        for name in superfluous(self.lock, roots):
            raise self._differs(name, f"nothing of {name}", f"{name}, which no package requires")

    def _add(self, requirement: str) -> str:
        project = self.spec.project
        if project is None:
            return ""
        return (
            f"Add {requirement} to {project.folder}/pyproject.toml, then run `uv lock`; or take it out of the matrix."
        )

    def _differs(self, name: str, expected: str, actual: str, *, hint: str = "") -> LockError:
        spec = self.spec
        place = self.places.get(name) or self.places.get("") or "the lock"
        says = f"{place} locks {actual}" if self.places else f"the lock holds {actual}"
        usual = "Correct the row's accelerator or torch version, or name an index that has the wheel."
        if spec.project:
            usual = "Correct the row, or lock the project again with the row's versions."
        return LockError(
            f"matrix.yaml:{spec.line}: {spec.id}: the row says {expected}, but {says}.", hint=hint or usual
        )


def _like(lock: Lock, stem: str) -> str:
    """Return the name of NVIDIA's package, which may end in CUDA's major version; empty if the lock has none."""
    return next((name for name in lock.pins if name.startswith(stem)), "")


def names_of(requirements: Iterable[str]) -> set[str]:
    """Return the packages that requirements name for every platform."""
    parsed = map(Requirement, requirements)
    return {canonicalize_name(requirement.name) for requirement in parsed if not requirement.marker}
