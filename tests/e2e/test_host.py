"""The payloads on a bare Python of this machine, as on a node without containers."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import torchbake
from tests.e2e.stand_in import torch_wheel

pytestmark = pytest.mark.checks

TORCH = "2.13.0+cpu"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with torch, from wherever this host's pip gets its packages."""
    folder = tmp_path_factory.mktemp("host")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/pip", "install", "-q", "--no-compile", f"torch=={TORCH}", "numpy"], check=True)
    return folder / "bin/python"


@pytest.mark.long  # test_payloads.py runs them in the image
def test_payloads_run_on_a_bare_python(python: Path) -> None:
    names = ("tensor", "autograd", "export", "versions", "ddp")
    process = torchbake("smoke", "--host", str(python), "--format", "json", *(f"--payload={name}" for name in names))
    assert process.returncode == 0, process.stderr
    (host,) = json.loads(process.stdout)["images"]
    matches = {check["id"]: check for check in host["checks"]}
    assert matches.keys() == {*(f"smoke.{name}[cpu]" for name in names[:-1]), "smoke.ddp[gloo,1x2]"}
    assert {check["outcome"] for check in matches.values()} == {"passed"}
    assert matches["smoke.versions[cpu]"]["figures"]["found"]["torch"] == TORCH
    assert matches["smoke.ddp[gloo,1x2]"]["figures"]["world"] == 2


def test_a_gpu_that_is_required_is_not_replaced_by_the_cpu(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "cpu"], check=True)
    (place,) = (tmp_path / "cpu/lib").glob("python3*/site-packages")
    shutil.unpack_archive(next(torch_wheel(tmp_path / "wheels").glob("*.whl")), place, "zip")
    process = torchbake("smoke", "--host", str(tmp_path / "cpu/bin/python"), "--gpu", "require")
    assert process.returncode == 13
    assert "A GPU is required (--gpu require), but its torch is a CPU build" in process.stderr


def test_a_python_without_torch_is_told(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "empty"], check=True)
    process = torchbake("smoke", "--host", str(tmp_path / "empty/bin/python"))
    assert process.returncode == 13
    assert "has no torch" in process.stderr
