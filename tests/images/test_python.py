"""The Python packages of an image: those of the lock and no others, whole, consistent, and importable."""

import re
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.images.checks import check
from tests.images.subject import Row, Subject, cuda_major
from tests.images.tell import some
from torchbake.lock.companions import COMPANIONS
from torchbake.lock.lockfile import LayerName
from torchbake.lock.project_content import package_names
from torchbake.render.installers import CONSTRAINTS

# Libraries of CUDA by the name that their file has, without the hash that repair tools put into it.
_CUDA_LIBRARY = re.compile(
    r"(lib(?:cudart|cublas(?:Lt)?|cufft|cusparse|cusolver|curand|cudnn|nccl|nvrtc|nvJitLink|cuda)\b[\w-]*?)"
    r"(?:-[0-9a-f]{8})?\.so(?:\.(\d+))?[.\d]*$"
)
_OF_THE_MAJOR = {"libcudart", "libcublas", "libcublasLt", "libnvrtc", "libnvJitLink"}  # numbered as CUDA itself is
OUTSIDE: tuple[LayerName, ...] = ("torch", "nvidia", "devel")  # of the virtual environment
_CUDA_PACKAGE = re.compile(r"-cu(\d+)$")


def installed(packages: dict[str, Any]) -> dict[str, str]:
    return {canonicalize_name(one["name"]): one["version"] for one in packages["packages"]}


@check(
    "python.locked",
    "the packages of the lock are there at their versions, and the project's; in a derived image, torch and CUDA",
)
def test_locked(row: Row, subject: Subject, packages: dict[str, Any]) -> None:
    """Check the packages. A derived image's own lock decides on all but the wheels outside of the environment."""
    assert row.lock
    outside = {pin.name for layer in OUTSIDE for pin in row.lock.layers[layer]}
    matches, locked = installed(packages), {pin.name: pin.version for pin in row.lock.pins.values()}
    required = {name: version for name, version in locked.items() if name in outside or not subject.origin}
    wrong = [f"{name} {version} is missing" for name, version in required.items() if name not in matches]
    wrong += [
        f"{name} is {matches[name]}, not {version}"
        for name, version in required.items()
        if name in matches and Version(matches[name]) != Version(version)
    ]
    if not subject.origin:
        own = package_names(row.project.root, row.spec, row.lock)
        wrong += [f"{name} of the project is missing" for name in own if name and name not in matches]
        others = [f"{name} {version}" for name, version in matches.items() if name not in locked and name not in own]
        if len(others) != own.count(""):  # whose names are not known
            wrong += [f"{other} is not in the lock" for other in others] or ["a package of the project is missing"]
        entries = set(map(canonicalize_name, packages["entries"]))
        wrong += [f"uv does not see {name}: it is not listed in the environment" for name in sorted(outside - entries)]
    names = [canonicalize_name(one["name"]) for one in packages["packages"]]
    wrong += [f"{name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    assert not wrong, some(wrong)


@check("python.constraints", "pip and uv keep torch and CUDA as they are, and take torchvision as this torch needs it")
def test_constraints(row: Row, subject: Subject, constraints: str | None, packages: dict[str, Any]) -> None:
    assert row.lock
    if row.promise.environment.get("PIP_CONSTRAINT") != CONSTRAINTS:
        assert constraints is None, f"{CONSTRAINTS} is there, and the row does not say so"
        return
    assert constraints is not None, f"{CONSTRAINTS} is missing"
    matches, lines = installed(packages), [line for line in constraints.splitlines() if not line.startswith("#")]
    labels = subject.origin is not None  # `keep-torch` may have given torch the label that a project's lock has
    wrong = [
        f"{line} is not in it"
        for line in row.lock.constraints
        if line not in lines and not (labels and line.startswith("torch="))
    ]
    for requirement in map(Requirement, lines):
        name, specifier = canonicalize_name(requirement.name), requirement.specifier
        version = matches.get(name)
        if version is None and (name in COMPANIONS or str(specifier) == "<0"):
            continue
        if labels and name == "torch":
            specifier = SpecifierSet(re.sub(r"^=+(.*?)(\+.*)?$", r"==\1", str(specifier)))
        if version is None or not specifier.contains(version, prereleases=True):
            wrong.append(f"it has {requirement}, and {version or 'none'} is there")
    assert not wrong, some(wrong)


@check("python.requirements", "what each package requires is there at a version that it accepts (pip check, no pip)")
def test_requirements(packages: dict[str, Any]) -> None:
    matches = installed(packages)
    wrong = []
    for package in packages["packages"]:
        for requirement in map(Requirement, package["requires"]):
            if requirement.marker and not requirement.marker.evaluate({**packages["markers"], "extra": ""}):
                continue
            version = matches.get(canonicalize_name(requirement.name))
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                wrong.append(f"{package['name']} wants {requirement.name}{requirement.specifier}, has {version}")
    assert not wrong, some(wrong)


@check(
    "python.records",
    "each file that a wheel says it installed is there, with its size: trimming updated the wheel's record",
)
def test_records(packages: dict[str, Any]) -> None:
    wrong = [reason for package in packages["packages"] for reason in package["wrong_records"]]
    assert not wrong, some(wrong)


@check("python.imports", "every module of every package can be imported")
def test_imports(imports: dict[str, Any], figures: dict[str, Any]) -> None:
    figures["import torch"] = imports["seconds"].get("torch")
    wrong = [f"{name}: {reason}" for name, reason in imports["errors"].items()]
    assert "torch" in imports["seconds"], "there is no torch"
    assert not wrong, some(wrong)


@check("python.build", "torch is built for what the row and the tags say: CPU, or that very CUDA")
def test_build(row: Row, imports: dict[str, Any]) -> None:
    torch, expected = imports["torch"], row.spec.versions["cuda"]
    assert torch, f"torch cannot be imported: {imports['errors'].get('torch', 'it is not there')}"
    assert torch["cuda"] == expected, f"torch is built for {name_of(torch['cuda'])}, the row says {name_of(expected)}"


def name_of(cuda: str | None) -> str:
    return f"CUDA {cuda}" if cuda else "the CPU"


@check("python.cpu-only", "a CPU image holds nothing of NVIDIA's: no package, no library", families=("cpu",))
def test_cpu_only(packages: dict[str, Any], linking: dict[str, Any]) -> None:
    matches = [name for name in installed(packages) if name.startswith("nvidia-") or _CUDA_PACKAGE.search(name)]
    matches += [path for path in linking["paths"] if _CUDA_LIBRARY.match(path.rsplit("/", 1)[-1])]
    assert not matches, some(matches)


@check("python.one-cuda", "packages and libraries are of one CUDA major, the row's", families=("cuda",))
def test_one_cuda(subject: Subject, packages: dict[str, Any], linking: dict[str, Any]) -> None:
    majors: dict[str, list[str]] = {}
    for name in installed(packages):
        if match := _CUDA_PACKAGE.search(name):
            majors.setdefault(match[1], []).append(name)
    for path, name, major in libraries(linking):
        if name in _OF_THE_MAJOR and major:
            majors.setdefault(major, []).append(path)
    if not majors:
        pytest.skip("the image holds no library of CUDA")
    count = cuda_major(subject.row.spec) if subject.row else None
    usual = str(count) if count else max(majors, key=lambda major: len(majors[major]))
    wrong = [f"CUDA {major}: {some(names)}" for major, names in majors.items() if major != usual]
    assert not wrong, f"beside CUDA {usual}, {some(wrong)}"


def libraries(linking: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Path, name and major of each library of CUDA."""
    matches = []
    for path in linking["paths"]:
        if match := _CUDA_LIBRARY.match(path.rsplit("/", 1)[-1]):
            matches.append((path, match[1], match[2] or ""))
    return matches


@check("python.duplicates", "there is one cuDNN and one NCCL; of two, the loader takes whichever", families=("cuda",))
def test_duplicates(linking: dict[str, Any]) -> None:
    where: dict[str, list[str]] = {}
    for path, name, _ in libraries(linking):
        if name.startswith(("libcudnn", "libnccl")):
            where.setdefault(name, []).append(path)
    if not where:
        pytest.skip("the image holds neither cuDNN nor NCCL")
    wrong = [some(paths) for paths in where.values() if len(paths) > 1]
    assert not wrong, some(wrong)
