"""The SBOM of real images: against their locks, and against what their own tools say inside of them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.e2e.conftest import CPU, CUDA, INIT, ROOT, on_cuda, torchbake
from torchbake.lock.lockfile import parse_lock

pytestmark = pytest.mark.sbom

Built = dict[str, dict[str, Any]]
Run = Callable[..., str]
# Every distribution of the file system, as Python's own reader sees it: folder, name, version.
DISTRIBUTIONS = """
import importlib.metadata, json, os, re
found = []
for folder, names, _ in os.walk("/"):
    names[:] = [name for name in names if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
    for name in names:
        if name.endswith(".dist-info"):
            one = importlib.metadata.Distribution.at(os.path.join(folder, name))
            found.append((folder, re.sub("[-_.]+", "-", one.metadata["Name"]).lower(), one.version))
print(json.dumps(sorted(found)))
"""


@pytest.fixture(scope="module")
def folder(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SBOMs of the three images, with the project's own cache of layers."""
    folder = tmp_path_factory.mktemp("sboms")
    process = torchbake("sbom", *built, "--output", str(folder))
    assert process.returncode == 0, process.stderr
    return folder


def sbom(folder: Path, name: str) -> dict[str, Any]:
    matches: dict[str, Any] = json.loads((folder / name / "sbom.cdx.json").read_text())
    return matches


def of_type(matches: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [part for part in matches["components"] if part["purl"].startswith(f"pkg:{kind}/")]


def places(component: dict[str, Any]) -> list[str]:
    return [place["location"] for place in component["evidence"]["occurrences"]]


@pytest.mark.parametrize("name", [CPU, on_cuda()])
def test_an_image_has_exactly_its_locked_wheels_and_bundles(folder: Path, name: str) -> None:
    lock = parse_lock((ROOT / "images" / name / "requirements.lock").read_text(), name)
    wheels = of_type(sbom(folder, name), "pypi")
    installed = [part for part in wheels if any("/_vendor" not in place for place in places(part))]
    assert {part["name"]: part["version"] for part in installed} == {p.name: p.version for p in lock.pins.values()}
    assert len(installed) == len(lock.pins)


@pytest.mark.parametrize("name", [CPU, on_cuda()])
def test_the_distributions_are_those_that_python_finds(folder: Path, built: Built, run: Run, name: str) -> None:
    wheels = of_type(sbom(folder, name), "pypi")
    matches = sorted([place, part["name"], part["version"]] for part in wheels for place in places(part))
    assert matches == json.loads(run(built[name]["ref"], "python", "-c", DISTRIBUTIONS, user="0"))


@pytest.mark.parametrize("name", [CPU, on_cuda()])
def test_the_debian_packages_are_those_that_dpkg_lists(folder: Path, built: Built, run: Run, name: str) -> None:
    form = "${Package} ${Version} ${Architecture} ${source:Package} ${source:Version} ${db:Status-Status}\n"
    listed = [line.split() for line in run(built[name]["ref"], "dpkg-query", "-W", "-f", form).splitlines()]
    assert {line[5] for line in listed} == {"installed"}
    packages = sorted((line[0], line[1], line[2]) for line in listed)
    parts = of_type(sbom(folder, name), "deb")
    assert (
        sorted((part["name"], part["version"], *re.findall(r"arch=(\w+)", part["purl"])) for part in parts) == packages
    )
    assert all("distro=debian-12" in part["purl"] for part in parts)
    sources = {(line[0], f"{line[3]} {line[4]}") for line in listed if line[3:5] != line[0:2]}
    names = {(part["name"], source(part["purl"])) for part in parts if "upstream=" in part["purl"]}
    assert names == sources


def source(purl: str) -> str:
    name, _, version = purl.partition("upstream=")[2].partition("%40")
    return f"{name} {version}".replace("%2B", "+").replace("%7E", "~")


@pytest.mark.parametrize(
    ("name", "wheels"),
    [
        (CPU, {}),
        pytest.param(
            CUDA,
            {"torch": ["BSD-3-Clause"], "nvidia-cudnn-cu12": ["NVIDIA Proprietary Software"], "triton": ["MIT"]},
            marks=pytest.mark.cuda,
        ),
    ],
)
def test_licenses_are_what_packages_say(folder: Path, name: str, wheels: dict[str, list[str]]) -> None:
    parts = {part["name"]: part for part in sbom(folder, name)["components"]}

    def answer(name: str) -> list[str]:
        stated = parts[name]["licenses"]
        return sorted(one.get("expression") or one["license"].get("id") or one["license"]["name"] for one in stated)

    assert {wheel: answer(wheel) for wheel in wheels} == wheels
    assert answer("tini") == ["MIT"]
    assert "curl" in answer("libcurl3-gnutls")


@pytest.mark.parametrize("name", [CPU, on_cuda(), INIT])
def test_the_sbom_is_valid_and_of_the_image(folder: Path, built: Built, name: str) -> None:
    text = (folder / name / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    subject = json.loads(text)["metadata"]["component"]
    assert subject["purl"].endswith(f"@{built[name]['digest']}")
    assert built[name]["ref"] == f"{subject['name']}:{subject['version']}"


def test_an_image_of_one_program_has_no_packages(folder: Path) -> None:
    assert sbom(folder, INIT)["components"] == []


@pytest.mark.parametrize("seed", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_a_second_look_gives_the_same_bytes(folder: Path, tmp_path: Path, seed: str) -> None:
    process = torchbake("sbom", CPU, INIT, "--output", str(tmp_path), env={"PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo"})
    assert process.returncode == 0, process.stderr
    for name in (CPU, INIT):
        assert (tmp_path / name / "sbom.cdx.json").read_bytes() == (folder / name / "sbom.cdx.json").read_bytes()


def test_a_cached_sbom_equals_a_new_one_and_leaves_nothing(
    folder: Path, tmp_path: Path, project: Callable[..., Path]
) -> None:
    """Use a separate project with the same image and an empty cache."""
    matrix = project("rows: [{torch: 2.13.0, accelerator: cpu, base: debian12}]", repository="torchbake/pytorch")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    arguments = ("sbom", CPU, "--matrix", str(matrix), "--output", str(tmp_path / "sboms"))
    process = torchbake(*arguments, env={"TMPDIR": str(temporary)})
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "sboms" / CPU / "sbom.cdx.json").read_bytes() == (folder / CPU / "sbom.cdx.json").read_bytes()
    assert list(temporary.iterdir()) == []
    cache = {path.name: path.stat().st_size for path in (tmp_path / ".torchbake/packages").iterdir()}
    assert len([name for name in cache if name.endswith(".manifest.json")]) == 1
    assert sum(cache.values()) < 4_000_000


def test_the_json_result_stands_alone_with_packages_licenses(folder: Path, built: Built) -> None:
    process = torchbake("sbom", CPU, INIT, "--licenses", "--format", "json", "--output", str(folder))
    cpu, init = sorted(json.loads(process.stdout)["images"], key=lambda image: image["id"])
    assert (cpu["id"], cpu["digest"], cpu["problem"]) == (CPU, built[CPU]["digest"], "")
    assert cpu["path"] == str(folder / CPU / "sbom.cdx.json")
    rows = {row["license"]: [package["name"] for package in row["packages"]] for row in cpu["licenses"]}
    assert {"filelock", "setuptools", "tini"} <= set(rows["MIT"])
    assert "torch" in rows["Apache-2.0 WITH LLVM-exception"]
    without = {package["name"] for package in cpu["packages_without"]}
    assert cpu["unsaid"] == len(cpu["packages_without"])
    everything = {part["name"] for part in sbom(folder, CPU)["components"]}
    assert without | {name for names in rows.values() for name in names} == everything
    assert not without & {name for names in rows.values() for name in names}
    assert (init["python"], init["debian"], init["licenses"]) == (0, 0, [])


def test_the_table_shows_an_image_that_is_not_built_as_such(folder: Path, built: Built) -> None:
    process = torchbake("sbom", INIT, "2.15.0-cuda13.2-cudnn9-devel-debian12", "--output", str(folder))
    assert process.returncode == 7
    assert "none: it is not in the engine" in process.stdout
    assert str(folder / INIT / "sbom.cdx.json") in process.stdout
    assert "nox -s build sbom -- 2.15.0-cuda13.2-cudnn9-devel-debian12" in process.stderr


def test_the_licenses_are_a_table_an_image(built: Built, folder: Path) -> None:
    process = torchbake("sbom", CPU, "--licenses", "--output", str(folder))
    lines = process.stdout.splitlines()
    assert lines[0].strip() == CPU
    rows = {columns[0]: int(columns[1]) for line in lines[2:] if len(columns := re.split(r"\s{2,}", line.strip())) > 2}
    assert rows["MIT"] > 10
    assert rows["(not known)"] > 0
    assert "\x1b" not in process.stdout
