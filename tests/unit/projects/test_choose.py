"""The row of a project: torch, accelerator, Python, base and indexes, each with the reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import check_golden
from torchbake.core.paths import TOOLKIT
from torchbake.errors import LockError, TorchbakeError, UsageError
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import ImageSpec, ProjectSpec
from torchbake.matrix.starter import ImageNames, project_starter
from torchbake.projects.choose import ProjectChoice, choose
from torchbake.projects.find_lock import LockPlace
from torchbake.projects.folder import ProjectFolder, PythonRule
from torchbake.projects.packages import Archive, GitSource, ProjectLock, ProjectPackage, Sdist, Source, WheelSource

GOLDEN = Path(__file__).parents[1] / "golden/projects"
PYPI = "https://pypi.org/simple"
CU128 = "https://download.pytorch.org/whl/cu128"
CPU = "https://download.pytorch.org/whl/cpu"
WHEEL = WheelSource(filename="x-1-py3-none-any.whl")
PYPROJECT = {
    "project": {
        "name": "trainer",
        "optional-dependencies": {"cpu": ["torch"], "cu128": ["torch"], "plot": ["seaborn"]},
    },
    "dependency-groups": {"dev": ["pytest"], "gpu": ["torch"]},
    "build-system": {"requires": ["hatchling"]},
}
SIZES = {"pyproject.toml": 1, "README.md": 1, "src/trainer/__init__.py": 1, "tests/test_trainer.py": 1}
AT_3_12 = PythonRule(
    specifier="==3.12.*", place="trainer/.python-version:1", reason="trainer/.python-version", exact=True
)
FROM_3_10 = PythonRule(
    specifier=">=3.10,<3.13",
    place="trainer/pyproject.toml:5",
    reason="requires-python >=3.10,<3.13 (trainer/pyproject.toml:5)",
)


def package(name: str, version: str, index: str = PYPI, source: Source = WHEEL) -> ProjectPackage:
    return ProjectPackage(name=name, version=version, hashes=("sha256:" + "0" * 64,), index=index, source=source)


def torch(version: str, index: str = PYPI) -> ProjectPackage:
    return package("torch", version, index)


def cuda(version: str, name: str = "nvidia-cuda-runtime-cu12") -> ProjectPackage:
    return package(name, version)


FROM_PYPI = (torch("2.10.0"), cuda("12.8.90"), package("nvidia-cudnn-cu12", "9.10.2.21"), package("numpy", "2.1.0"))


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A project: the packages of its lock, also those with an extra or group alone, and those for one Python alone."""

    packages: tuple[ProjectPackage, ...] = FROM_PYPI
    only_with: Mapping[str, tuple[ProjectPackage, ...]] = field(default_factory=dict)
    only_on: Mapping[str, tuple[ProjectPackage, ...] | str] = field(default_factory=dict)
    rules: tuple[PythonRule, ...] = ()
    lock: str = "uv.lock"
    pyproject: Mapping[str, Any] = field(default_factory=lambda: PYPROJECT)

    def read(self, spec: ProjectSpec, python: str) -> ProjectLock:
        names = {*spec.extras, *spec.groups}
        if {"cpu", "cu128"} <= names:
            raise LockError("trainer/uv.lock: Extras `cpu` and `cu128` are incompatible")
        more = self.only_on.get(python, ())
        if isinstance(more, str):
            raise LockError(more)
        packages = (*self.packages, *more, *(each for name in names for each in self.only_with.get(name, ())))
        lines = {each.name: 10 * number for number, each in enumerate(packages, 1)}
        return ProjectLock(path=spec.lock_path, packages=packages, lines=lines)

    def choose(self, **options: Any) -> ProjectChoice:
        place = LockPlace(folder="trainer", lock=self.lock)
        folder = ProjectFolder(place=place, pyprojects={".": self.pyproject}, sizes=SIZES, rules=self.rules)
        return choose(folder, self.read, **options)


# A project; the options; torch, accelerator, cuDNN if it is not the default, base and indexes; parts of the reasons.
CHOICES: dict[str, tuple[Sample, dict[str, Any], tuple[Any, ...], tuple[str, ...]]] = {
    "pypi": (
        Sample(),
        {},
        ("2.10.0", "cuda12.8", "", "debian12", ()),
        ("torch 2.10.0 (trainer/uv.lock:10)", "cuda12.8: nvidia-cuda-runtime-cu12 12.8.90 (trainer/uv.lock:20)"),
    ),
    "cu128": (
        Sample(packages=(package("einops", "0.8"), torch("2.9.1+cu128", CU128), cuda("12.8.90")), rules=(AT_3_12,)),
        {},
        ("2.9.1", "cuda12.8", "", "ubuntu24.04", (CU128,)),
        (
            "cuda12.8: the wheel's local version +cu128",
            "Python 3.12: trainer/.python-version",
            "base ubuntu24.04: its Python is 3.12",
            f"index {CU128}: torch",
        ),
    ),
    "cpu": (
        Sample(packages=(torch("2.13.0+cpu", CPU), package("torchvision", "0.28.0+cpu", CPU)), rules=(FROM_3_10,)),
        {},
        ("2.13.0", "cpu", "", "debian12", (CPU,)),
        ("cpu: the wheel's local version +cpu", "also allows 3.12", f"index {CPU}: torch, torchvision"),
    ),
    "index alone": (
        Sample(packages=(torch("2.10.0", "https://m.example/whl/cu126/"), cuda("12.6.77"))),
        {},
        ("2.10.0", "cuda12.6", "", "debian12", ("https://m.example/whl/cu126/",)),
        ("cuda12.6: the wheel's index https://m.example/whl/cu126/",),
    ),
    "index of the CPU": (
        Sample(packages=(torch("2.10.0", "https://m.example/whl/cpu"),)),
        {},
        ("2.10.0", "cpu", "", "debian12", ("https://m.example/whl/cpu",)),
        (),
    ),
    "cuda13": (
        Sample(packages=(torch("2.12.0"), cuda("13.0.96", "nvidia-cuda-runtime"), package("nvidia-cudnn-cu13", "9.2"))),
        {},
        ("2.12.0", "cuda13.0", "", "debian12", ()),
        ("torch 2.12.0",),
    ),
    "cudnn 8": (
        Sample(packages=(torch("2.1.2"), cuda("12.1.105"), package("nvidia-cudnn-cu12", "8.9.2.26"))),
        {},
        ("2.1.2", "cuda12.1", "8", "debian12", ()),
        (),
    ),
    "an extra": (
        Sample(packages=(), only_with={"cpu": (torch("2.10.0+cpu", CPU),), "cu128": FROM_PYPI}),
        {"extras": ("cu128",)},
        ("2.10.0", "cuda12.8", "", "debian12", ()),
        (),
    ),
    "a later Python has all wheels": (
        Sample(only_on={"3.11": (package("scipy", "2.0", source=Sdist(url="scipy.tar.gz")),), "3.13": "no wheel fits"}),
        {},
        ("2.10.0", "cuda12.8", "", "ubuntu24.04", ()),
        ("Python 3.11 does not fit: scipy 2.0 has no wheel (trainer/uv.lock:50)", "Python 3.13 does not fit: no wheel"),
    ),
    "no Python has all wheels": (
        Sample(packages=(*FROM_PYPI, package("antlr4", "4.9", source=Sdist(url="a.tar.gz")))),
        {},
        ("2.10.0", "cuda12.8", "", "debian12", ()),
        (),
    ),
    "a wheel with windows": (
        Sample(packages=(*FROM_PYPI, package("opencv-python", "4.13.0.92"))),
        {},
        ("2.10.0", "cuda12.8", "", "debian12", ()),
        ("apt libgl1, libglib2.0-0, libsm6, libxext6: opencv-python (trainer/uv.lock:50) needs their libraries",),
    ),
    "a later Python has more wheels": (
        Sample(
            packages=(*FROM_PYPI, package("antlr4", "4.9", source=Sdist(url="a.tar.gz"))),
            only_on={"3.11": (package("scipy", "2.0", source=Sdist(url="scipy.tar.gz")),)},
        ),
        {},
        ("2.10.0", "cuda12.8", "", "debian13", ()),
        ("Python 3.11 does not fit: scipy 2.0 has no wheel (trainer/uv.lock:60)",),
    ),
    "a base by name": (
        Sample(rules=(AT_3_12, FROM_3_10)),
        {"base": "debian12"},
        ("2.10.0", "cuda12.8", "", "debian12", ()),
        ("that of --base debian12, in place of trainer/.python-version",),
    ),
    "a wheel by its address": (
        Sample(packages=(package("torch", "2.10.0+cpu", "", Archive(url="https://x.example/torch.whl")),)),
        {},
        ("2.10.0", "cpu", "", "debian12", ()),
        (),
    ),
    "a mirror of this machine": (
        Sample(packages=(torch("2.10.0", "https://m.example/simple/"), *FROM_PYPI[1:]), lock="requirements.txt"),
        {"own_sources": ("https://m.example/simple",)},
        ("2.10.0", "cuda12.8", "", "debian12", ()),
        (),
    ),
    "a mirror in a lock": (
        Sample(packages=(torch("2.10.0", "https://m.example/simple/"), *FROM_PYPI[1:])),
        {"own_sources": ("https://m.example/simple",)},
        ("2.10.0", "cuda12.8", "", "debian12", ("https://m.example/simple/",)),
        (),
    ),
    "a folder of wheels": (
        Sample(packages=(torch("2.13.0+cpu", "file:///srv/wheels"), package("numpy", "2.1"))),
        {},
        ("2.13.0", "cpu", "", "debian12", ()),
        ("file:///srv/wheels: has torch", "find-links"),
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_row_is_chosen_with_its_reasons(name: str, tmp_path: Path) -> None:
    sample, options, expected, parts = CHOICES[name]
    choice = sample.choose(**options)
    row = choice.row
    assert (row.torch, row.accelerator, row.cudnn, row.base.name, row.indexes) == expected
    assert row.project.files == ("pyproject.toml", "README.md", "src/")
    reasons = "\n".join(choice.reasons)
    assert [part for part in parts if part not in reasons] == [], reasons
    # The matrix has one image, of this project.
    path = tmp_path / "matrix.yaml"
    path.write_text(project_starter((TOOLKIT / "matrix.yaml").read_text(), ImageNames(repository="acme/trainer"), row))
    (image,) = load_project(path).expansion.specs
    assert isinstance(image, ImageSpec)
    assert (image.torch, str(image.accelerator), image.project) == (row.torch, row.accelerator, row.project)
    assert {*image.apt} == {"git", *row.apt}
    if name in ("pypi", "cu128", "cpu", "an extra"):
        check_golden(GOLDEN / f"{name.replace(' ', '-')}.yaml", path.read_text())


# A project, the options, and parts of the message and its hint.
REFUSALS: dict[str, tuple[Sample, dict[str, Any], type[TorchbakeError], tuple[str, ...]]] = {
    "in extras that conflict": (
        Sample(packages=(), only_with={"cpu": (torch("2.10.0+cpu"),), "cu128": FROM_PYPI, "gpu": FROM_PYPI}),
        {},
        LockError,
        ("the extra cpu and the extra cu128 and the group gpu", "--extra cpu or --extra cu128 or --group gpu"),
    ),
    "both extras": (
        Sample(packages=(), only_with={"cpu": (torch("2.10.0+cpu"),), "cu128": FROM_PYPI}),
        {"extras": ("cpu", "cu128")},
        LockError,
        ("incompatible",),
    ),
    "two torches": (
        Sample(packages=(torch("2.10.0"), torch("2.9.1+cpu"), cuda("12.8.90"))),
        {},
        LockError,
        ("2.10.0", "2.9.1+cpu"),
    ),
    "no torch": (Sample(packages=(package("numpy", "2.1"),)), {}, LockError, ("trainer/uv.lock", "no torch")),
    "no torch in requirements": (Sample(packages=(), lock="requirements.txt"), {}, LockError, ("has no torch",)),
    "macOS alone": (
        Sample(packages=(package("torch", "2.2.2", source=Sdist(url="torch.tar.gz")),)),
        {},
        LockError,
        ("trainer/uv.lock:10", "Linux"),
    ),
    "no wheel of torch at all": (
        Sample(only_on=dict.fromkeys(("3.11", "3.12", "3.13", "3.14"), "trainer/uv.lock:10: only macOS wheels")),
        {},
        LockError,
        ("only macOS wheels",),
    ),
    "torch from git": (
        Sample(packages=(package("torch", "2.10.0", source=GitSource(url="https://x.example", commit="1")),)),
        {},
        LockError,
        ("no wheel",),
    ),
    "no Python": (
        Sample(only_on={"3.11": "b", "3.12": "c", "3.13": "d", "3.14": "e"}),
        {},
        LockError,
        ("Python 3.11: b", "Python 3.14: e"),
    ),
    "rocm": (Sample(packages=(torch("2.10.0+rocm6.4"),)), {}, LockError, ("+rocm6.4", "trainer/uv.lock:10")),
    "unknown accelerator": (Sample(packages=(torch("2.10.0"),)), {}, LockError, ("nothing says the accelerator",)),
    "CUDA in the wheel": (Sample(packages=(torch("2.0.1+cu118"),)), {}, LockError, ("CUDA in its own wheel",)),
    "unknown extra": (Sample(), {"extras": ("cu126",)}, UsageError, ("'cu126'", "cu128?")),
    "unknown group": (Sample(), {"groups": ("deploy",)}, UsageError, ("'deploy'", "dev, gpu")),
    "extra of requirements": (Sample(lock="requirements.txt"), {"extras": ("cpu",)}, UsageError, ("no extras",)),
    "a pyproject.toml of other types": (
        Sample(packages=(), pyproject={"project": 1, "dependency-groups": [], "tool": "", "build-system": 0}),
        {},
        LockError,
        ("has no torch",),
    ),
    "a base that requires-python excludes": (
        Sample(rules=(FROM_3_10,)),
        {"base": "debian13"},
        LockError,
        ("trainer/pyproject.toml:5", "3.13"),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_project_without_a_row_is_refused_with_its_line(name: str) -> None:
    sample, options, kind, parts = REFUSALS[name]
    with pytest.raises(kind) as refused:
        sample.choose(**options)
    sentence = refused.value.sentence
    assert [part for part in parts if part not in sentence] == [], sentence


def test_only_needed_locks_are_read() -> None:
    """A pyproject.toml alone is resolved for each Python, which takes seconds."""
    pythons = list[str]()
    sample = Sample(rules=(FROM_3_10,))

    def read(spec: ProjectSpec, python: str) -> ProjectLock:
        pythons.append(python)
        return sample.read(spec, python)

    place = LockPlace(folder=".", lock="pyproject.toml")
    choose(ProjectFolder(place=place, pyprojects={}, sizes={}, rules=sample.rules), read)
    assert pythons == ["3.11"]


def test_a_reason_says_only_true_things() -> None:
    """The first base is torchbake's own; a rule that fits is not replaced; a lock of uv is not resolved."""
    gap = Sample(only_on={"3.11": "no wheel fits"}, rules=(FROM_3_10,))
    reasons = "\n".join(gap.choose().reasons)
    assert "Python 3.12: requires-python >=3.10,<3.13 (trainer/pyproject.toml:5) also allows 3.11\n" in reasons
    reasons = "\n".join(Sample(rules=(AT_3_12,)).choose(base="ubuntu24.04").reasons)
    assert "Python 3.12: that of --base ubuntu24.04\n" in reasons
    assert "resolved" not in reasons
    assert "resolved" in Sample(lock="pyproject.toml").choose().reasons[0]
    assert "no file names another, and 3.12, 3.13, 3.14 would do" in "\n".join(Sample().choose().reasons)


def test_debian_packages_have_the_names_of_the_base() -> None:
    sample = Sample(packages=(*FROM_PYPI, package("opencv-contrib-python", "4.13")), rules=(AT_3_12,))
    assert "libglib2.0-0t64" in sample.choose().row.apt
    headless = Sample(packages=(*FROM_PYPI, package("opencv-python-headless", "4.13")))
    assert headless.choose().row.apt == ()
