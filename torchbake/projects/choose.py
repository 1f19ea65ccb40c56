"""Choose the row of a project: torch, accelerator, Python, base, indexes and files, each with the reason.

It reads no file: a function of the caller reads the project's lock for a Python.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from torchbake.core.suggest import nearest
from torchbake.errors import LockError, UsageError
from torchbake.hostconfig.pip_config import PYPI
from torchbake.lock.project_inputs import kind_of
from torchbake.matrix.accelerator import Accelerator
from torchbake.matrix.model import Defaults
from torchbake.matrix.spec import BaseSpec, ProjectSpec
from torchbake.matrix.starter import ProjectRow
from torchbake.matrix.validators import index, torch_version
from torchbake.projects.choose_python import fitting_bases
from torchbake.projects.debian_needs import debian_needs
from torchbake.projects.files import choose_files
from torchbake.projects.folder import ProjectFolder
from torchbake.projects.package_files import table_of
from torchbake.projects.packages import GitSource, ProjectLock, ProjectPackage, Sdist, WheelSource

Read: TypeAlias = Callable[[ProjectSpec, str], ProjectLock]
_LOCAL = re.compile(r"cu(\d{2,})")  # of versions (2.10.0+cu128) and of indexes (/whl/cu128)
_CUDA_LIBRARY = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")
_CUDNN = re.compile(r"nvidia-cudnn(-cu\d+)?")


@dataclass(frozen=True, kw_only=True)
class ProjectChoice:
    """The row of a project, and the reasons for it, a line each."""

    row: ProjectRow
    reasons: tuple[str, ...]


def choose(
    folder: ProjectFolder,
    read: Read,
    *,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    base: str = "",
    own_sources: Collection[str] = (),
) -> ProjectChoice:
    """Choose a row for the project in a folder. ``base`` is the name of the user's own choice.

    ``read`` returns the packages of the lock for a Python. ``own_sources`` are this machine's indexes. A matrix
    has none of them, except those in a uv.lock or a pylock.toml. Raises UsageError for an extra, a group or a base that
    does not exist, and LockError if no row fits.
    """
    _check_names(folder, extras, groups)
    place = folder.place
    spec = replace(place.spec, extras=tuple(extras), groups=tuple(groups))
    base_spec, lock, reasons = _choose_base(folder, spec, read, base)
    torch = _torch_of(lock, base_spec)
    if torch is None:
        raise _without_torch(folder, spec, read, base_spec)
    version = _public_version(torch, lock)
    accelerator, why = _accelerator_of(torch, lock)
    indexes, remarks = _indexes_of(torch, lock, own_sources)
    apt, needs = debian_needs(lock.by_name, base_spec.suite)
    files = choose_files(folder.pyprojects, folder.sizes, lock.folders, member=bool(place.member))
    row = ProjectRow(
        torch=version,
        accelerator=str(accelerator),
        cudnn=_cudnn_of(lock),
        base=base_spec,
        indexes=indexes,
        apt=apt,
        project=replace(spec, files=files.files),
    )
    first = (f"torch {version} ({_origin(lock)})", f"{accelerator}: {why}")
    if apt:
        remarks.append(f"apt {', '.join(apt)}: {needs} ({lock.place(needs)}) needs their libraries")
    return ProjectChoice(row=row, reasons=(*first, *reasons, *remarks, *files.reasons))


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A base with the packages of the lock for its Python."""

    base: BaseSpec
    lock: ProjectLock
    reason: str

    @property
    def sdists(self) -> tuple[ProjectPackage, ...]:
        """The packages without a wheel for this Python."""
        return tuple(package for package in self.lock.packages if isinstance(package.source, Sdist))


def _choose_base(
    folder: ProjectFolder, spec: ProjectSpec, read: Read, base_name: str
) -> tuple[BaseSpec, ProjectLock, list[str]]:
    """Return the base whose Python has the most wheels, the first of several; with the reasons."""
    candidates, failures = list[_Candidate](), dict[str, LockError]()
    for base, reason in fitting_bases(folder.rules, base_name):
        try:
            candidates.append(_Candidate(base=base, lock=read(spec, base.python), reason=reason))
        except LockError as error:
            if error.message in (other.message for other in failures.values()):
                raise  # no other Python helps
            failures[base.python] = error
        else:
            if not candidates[-1].sdists:
                break
    if candidates:
        best = min(candidates, key=lambda each: len(each.sdists))
        return best.base, best.lock, _reasons(best, candidates, failures)
    if len(failures) == 1:
        raise next(iter(failures.values()))
    raise LockError(
        "\n  ".join(
            (
                "No Python of a base has all packages:",
                *(f"Python {python}: {error.message}" for python, error in failures.items()),
            )
        ),
        hint=next(iter(failures.values())).hint,
    )


def _reasons(best: _Candidate, candidates: Sequence[_Candidate], failures: Mapping[str, LockError]) -> list[str]:
    """Return the reasons for a base, with those against the bases that were tried before it."""
    others = {python: error.message.splitlines()[0] for python, error in failures.items()}
    names = {package.name for package in best.sdists}
    for each in candidates[: candidates.index(best)]:
        lacking = next(package for package in each.sdists if package.name not in names)
        others[each.base.python] = f"{lacking.name} {lacking.version} has no wheel ({each.lock.place(lacking.name)})"
    lines = [f"Python {python} does not fit: {others[python]}" for python in sorted(others, key=Version)]
    base = best.base
    return [*lines, f"Python {base.python}: {best.reason}", f"base {base.name}: its Python is {base.python}"]


def _torch_of(lock: ProjectLock, base: BaseSpec) -> ProjectPackage | None:
    """Return the torch of a lock; None if it has none. Raises LockError for several."""
    torches = [package for package in lock.packages if package.name == "torch"]
    if len(torches) > 1:
        raise LockError(
            f"{lock.place('torch')}: has several torches for Python {base.python} on Linux: "
            f"{', '.join(each.version for each in torches)}.",
            hint="Give each of them a marker or an extra of its own, so that one is left.",
        )
    return torches[0] if torches else None


def _origin(lock: ProjectLock) -> str:
    """Return the place of torch's version."""
    resolved = kind_of(lock.path) == "pyproject"
    return f"{lock.path} has no lock, so it is resolved" if resolved else lock.place("torch")


def _public_version(torch: ProjectPackage, lock: ProjectLock) -> str:
    """Return torch's version without the local part. Raises LockError if no row of a matrix can have it."""
    place = lock.place("torch")
    if isinstance(torch.source, Sdist | GitSource):
        raise LockError(
            f"{place}: torch {torch.version} has no wheel for Linux on x86_64.",
            hint="Lock the project for Linux too, from PyPI or from https://download.pytorch.org/whl.",
        )
    try:
        return torch_version(Version(torch.version).public)
    except (InvalidVersion, ValueError) as error:
        raise LockError(f"{place}: torch has no version for a row: {error}.", hint="Lock a release of torch.") from None


def _accelerator_of(torch: ProjectPackage, lock: ProjectLock) -> tuple[Accelerator, str]:
    """Return the accelerator of torch's wheel, with the reason. Raises LockError if nothing says it."""
    local = Version(torch.version).local or ""
    runtime = _package_of(lock, _CUDA_LIBRARY)
    parts = [part for part in torch.index.split("/") if part == "cpu" or _LOCAL.fullmatch(part)]
    if local == "cpu" or (not local and parts[-1:] == ["cpu"]):
        return Accelerator(kind="cpu"), _why(local, torch.index)
    if not local and not parts and runtime is None:
        raise LockError(
            f"{lock.place('torch')}: nothing says the accelerator of torch {torch.version}: no local version such as "
            "+cu128 or +cpu, no index of one accelerator, and no nvidia-cuda-runtime in the lock.",
            hint="Lock torch from an index of PyTorch, such as https://download.pytorch.org/whl/cpu.",
        )
    if local and not _LOCAL.fullmatch(local):
        raise LockError(
            f"{lock.place('torch')}: torch {torch.version} is for +{local}; images are for CUDA or the CPU.",
            hint="Lock torch from https://download.pytorch.org/whl/cu128, for example.",
        )
    if runtime is None:
        raise LockError(
            f"{lock.place('torch')}: torch {torch.version} has CUDA in its own wheel; images share that of NVIDIA's.",
            hint="Lock torch 2.1 or later, whose wheels need NVIDIA's.",
        )
    if not local and not parts:
        release = (*Version(runtime.version).release, 0)[:2]
        return Accelerator(
            kind="cuda", version=release
        ), f"{runtime.name} {runtime.version} ({lock.place(runtime.name)})"
    digits = (local or parts[-1]).removeprefix("cu")
    return Accelerator(kind="cuda", version=(int(digits[:-1]), int(digits[-1]))), _why(local, torch.index)


def _why(local: str, address: str) -> str:
    return f"the wheel's local version +{local}" if local else f"the wheel's index {address}"


def _cudnn_of(lock: ProjectLock) -> str:
    """Return cuDNN's major version if it is not the default of a matrix; empty without cuDNN."""
    package = _package_of(lock, _CUDNN)
    major = package.version.partition(".")[0] if package else ""
    return "" if major == Defaults.model_fields["cudnn"].default else major


def _package_of(lock: ProjectLock, name: "re.Pattern[str]") -> ProjectPackage | None:
    return next((package for package in lock.packages if name.fullmatch(package.name)), None)


def _indexes_of(
    torch: ProjectPackage, lock: ProjectLock, own_sources: Collection[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the indexes of the lock besides PyPI, torch's first, and a remark for each place of wheels."""
    # Without a lock, and for a requirements file, it was this machine that decided on the indexes.
    ignored = own_sources if kind_of(lock.path) in ("requirements", "pyproject") else ()
    others = {"", PYPI, *(place.rstrip("/") for place in ignored)}
    packages = dict[str, list[str]]()
    for package in (torch, *lock.packages):
        if isinstance(package.source, WheelSource | Sdist) and package.index.rstrip("/") not in others:
            packages.setdefault(package.index, []).append(package.name)
    indexes, remarks = list[str](), list[str]()
    for address, names in packages.items():
        some_names = ", ".join(dict.fromkeys(names[:3])) + (" and others" if len({*names}) > 3 else "")
        try:
            indexes.append(index(address))
            remarks.append(f"index {address}: {some_names}")
        except ValueError:
            remarks.append(
                f"{address}: has {some_names}, and is no address for a matrix; each machine that builds needs it in "
                "pip's find-links"
            )
    return tuple(indexes), remarks


def _without_torch(folder: ProjectFolder, spec: ProjectSpec, read: Read, base: BaseSpec) -> LockError:
    """Return the error for a lock without torch, which names the extras and groups that have it."""
    options = list[str]()
    for key, option in (("extras", "--extra"), ("groups", "--group")):
        for name in _names_of(folder, key):
            try:
                lock = read(ProjectSpec(**{**vars(spec), key: (*getattr(spec, key), name)}), base.python)
            except LockError:
                continue
            options += [f"{option} {name}"] if "torch" in lock.by_name else []
    path = folder.place.path(folder.place.lock)
    if options:
        return LockError(
            f"{path}: torch is only in {' and '.join(_in_words(option) for option in options)}.",
            hint=f"Choose one: {' or '.join(options)}",
        )
    return LockError(f"{path}: has no torch.", hint="Add it to the project, and lock again: uv add torch")


def _in_words(option: str) -> str:
    return option.removeprefix("--").replace("extra ", "the extra ").replace("group ", "the group ")


def _check_names(folder: ProjectFolder, extras: Sequence[str], groups: Sequence[str]) -> None:
    """Raise UsageError for extras and groups that the project does not have."""
    for key, names in (("extras", extras), ("groups", groups)):
        valid_names = {canonicalize_name(name) for name in _names_of(folder, key)}
        for name in names:
            if canonicalize_name(name) not in valid_names:
                near = nearest(name, valid_names, count=1)
                there = f"there are {', '.join(sorted(valid_names))}" if valid_names else f"there are no {key}"
                raise UsageError(
                    f"The project has no {key.removesuffix('s')} {name!r}: {there} in pyproject.toml.",
                    hint=f"Did you mean {near[0]}?" if near else "Leave the option out, or correct its name.",
                )


def _names_of(folder: ProjectFolder, key: str) -> Iterator[str]:
    """Yield the names of the project's extras or groups; none for a requirements file, which has none."""
    if kind_of(folder.place.lock) == "requirements":
        return
    keys = ("project", "optional-dependencies") if key == "extras" else ("dependency-groups",)
    yield from table_of(folder.pyprojects.get(folder.place.member or ".", {}), *keys)
