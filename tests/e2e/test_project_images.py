"""Images of a user's project: what is in them, what an edit changes, and what a broken project reports."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.conftest import images_of, torchbake
from tests.e2e.test_by_hand import build_by_hand, differences
from tests.e2e.test_layers import torch_files
from tests.libraries import library
from tests.wheels import write_wheel
from torchbake.core.files import write_text
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.lock.builder_lock import make_builder_lock
from torchbake.lock.image_lock import inputs_of, lock_path, make_lock
from torchbake.lock.lockfile import assign_layers, format_lock
from torchbake.lock.project_inputs import project_digest
from torchbake.lock.uv import UvRequest, resolve
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import pytorch_of

pytestmark = pytest.mark.build

REPOSITORY, BY_HAND = "torchbake-test/project/pytorch", "torchbake-test/project/by-hand"
PACKAGE, SCRIPT = "2.99.0-cpu-runtime-debian12", "2.99.0-cpu-script-debian12"
ROWS = """
rows:
- torch: 2.99.0
  accelerator: cpu
  base: debian12
  flavor: [runtime]
  packages: {pip: [numpy, setuptools]}
  project: {folder: trainer, files: [pyproject.toml, src/, packages/core/]}
- torch: 2.99.0
  accelerator: cpu
  base: debian12
  flavor: [script]
  packages: {pip: [numpy, setuptools]}
  project: {folder: scripts, lock: requirements.txt, files: [train.py, lib/]}
"""
FILES = {
    "trainer/pyproject.toml": """
        [build-system]
        requires = ["hatchling"]
        build-backend = "hatchling.build"
        [project]
        name = "acme-trainer"
        version = "1.0"
        dependencies = ["torch", "numpy", "acme-core>=2"]
        scripts = {acme-train = "acme_trainer:main"}
        """,
    "trainer/src/acme_trainer/__init__.py": """
        import acme_core, numpy, torch
        def main():
            print("loss", numpy.ones(2).sum() * acme_core.factor(), torch.__version__, numpy.__file__)
        """,
    "trainer/packages/core/pyproject.toml": """
        [build-system]
        requires = ["setuptools"]
        [project]
        name = "acme-core"
        version = "2.0"
        [tool.setuptools]
        packages = ["acme_core"]
        package-data = {acme_core = ["*.txt"]}
        """,
    "trainer/packages/core/acme_core/__init__.py": """
        import importlib.resources
        def factor():
            return int(importlib.resources.files(__name__).joinpath("factor.txt").read_text())
        """,
    "trainer/packages/core/acme_core/factor.txt": "21",
    "trainer/uv.lock": """
        version = 1
        [[package]]
        name = "acme-core"
        version = "2.0"
        source = { editable = "packages/core" }
        [[package]]
        name = "acme-trainer"
        version = "1.0"
        source = { editable = "." }
        """,
    "scripts/train.py": "import lib.model\nprint(lib.model.NAME)",
    "scripts/lib/model.py": "NAME = 'tiny'",
    "scripts/requirements.txt": "torch==2.99.0+cpu",
}


@pytest.fixture
def matrix(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A matrix with two projects: one has two packages and a large wheel, and the other has only scripts.

    A small wheel replaces torch. `test_by_hand.py` compares the image with the real one.
    """
    torch = torch_files("2.99.0+cpu", library())
    write_wheel(tmp_path / "wheels", "torch", "2.99.0+cpu", torch)
    monkeypatch.setenv("PIP_FIND_LINKS", f"{os.environ.get('PIP_FIND_LINKS', '')} {tmp_path / 'wheels'}".strip())
    path = project(ROWS, repository=REPOSITORY)
    path.write_text(path.read_text().replace("flavors: {runtime: {}}", "flavors: {runtime: {}, script: {}}"))
    for name, text in FILES.items():
        lines = text.strip("\n").splitlines()
        margin = len(lines[0]) - len(lines[0].lstrip())
        write_text(path.parent / name, "".join(f"{line[margin:]}\n" for line in lines))
    _write_locks(path)
    return path


def _write_locks(matrix: Path) -> None:
    project, config = load_project(matrix), read_pip_config()
    make_builder_lock(project.root, config)
    for spec in pytorch_of(project.expansion.specs):
        lock = make_lock(spec, config)
        if spec.id == PACKAGE:
            layers = assign_layers(lock.pins.values(), heavy={"numpy"})
            build = resolve(UvRequest(requirements=("hatchling", "setuptools"), python="3.11"), config)
            lock = replace(lock, layers=layers, packages=(".", "packages/core"), build=build)
        assert spec.project
        digest = project_digest(project.root, spec.project, lock.packages)
        lock = replace(lock, inputs=inputs_of(spec, digest))
        write_text(lock_path(project.root, spec), format_lock(lock))


def _build(matrix: Path) -> dict[str, dict[str, Any]]:
    process = torchbake("build", "all", "--matrix", str(matrix), "--format", "json")
    assert process.returncode == 0, process.stderr
    return images_of(process)


def test_a_project_is_the_top_layer_of_its_image(
    matrix: Path, run: Callable[..., str], engine: docker.DockerClient, tmp_path: Path
) -> None:
    refs = {name: image["ref"] for name, image in _build(matrix).items()}
    assert run(refs[PACKAGE], "acme-train") == "loss 42.0 2.99.0+cpu /packages/numpy/__init__.py"
    assert run(refs[PACKAGE], "sh", "-c", "command -v f2py") == "/packages/bin/f2py"
    assert run(refs[SCRIPT], "python", "train.py") == "tiny"
    build_by_hand(tmp_path / "state", BY_HAND, PACKAGE, matrix.parent)
    assert differences(run, refs[PACKAGE], BY_HAND) == []

    before = {name: _layers(engine, ref) for name, ref in refs.items()}
    for name in ("trainer/packages/core/acme_core/factor.txt", "scripts/lib/model.py"):
        path = matrix.parent / name
        path.write_text(path.read_text().replace("21", "22").replace("tiny", "small"))
    refs = {name: image["ref"] for name, image in _build(matrix).items()}
    assert run(refs[PACKAGE], "acme-train").startswith("loss 44.0")
    assert run(refs[SCRIPT], "python", "train.py") == "small"
    for name, ref in refs.items():
        after = _layers(engine, ref)
        assert after[:-1] == before[name][:-1], name
        assert after[-1] != before[name][-1], name
        top = next(step for step in engine.images.get(ref).history() if step["Size"])
        assert top["Size"] < 200_000, top


def _layers(engine: docker.DockerClient, ref: str) -> list[str]:
    layers: list[str] = engine.images.get(ref).attrs["RootFS"]["Layers"]
    return layers


@pytest.mark.long  # tests/unit/test_wheels_project.py has these sentences
def test_a_package_that_cannot_be_built_is_a_sentence(matrix: Path) -> None:
    for name, old, new, words in (
        (
            "packages/core/pyproject.toml",
            '["setuptools"]',
            '[]\nbuild-backend = "absent"',
            "core cannot be built",
        ),
        ("pyproject.toml", 'version = "1.0"', 'version = "1.1"', "lock has acme-trainer 1.0"),
    ):
        path = matrix.parent / "trainer" / name
        text = path.read_text()
        path.write_text(text.replace(old, new))
        _write_locks(matrix)  # else the build would lock again, and refuse the project earlier
        process = torchbake("build", PACKAGE, "--matrix", str(matrix), "--format", "json")
        assert process.returncode == 9, process.stderr
        assert words in images_of(process)[PACKAGE]["reason"]
        path.write_text(text)
