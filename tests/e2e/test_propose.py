"""New releases of torch in a real index: uv reads the CUDA of their wheels, and the matrix gets their rows."""

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import torchbake
from tests.e2e.serving import index_of
from tests.unit.conftest import SMALL
from tests.wheels import write_wheel

pytestmark = pytest.mark.lock

PLATFORM = "manylinux_2_28_x86_64"


def write_release(folder: Path, version: str, cuda: str) -> None:
    """Write a torch for Python 3.11 whose dependencies bring a CUDA."""
    needs = [f"nvidia-cuda-runtime=={cuda}"]
    write_wheel(folder / "torch", "torch", version, {}, needs=needs, tag=f"cp311-cp311-{PLATFORM}")
    write_wheel(folder / "nvidia-cuda-runtime", "nvidia-cuda-runtime", cuda, {}, tag=f"py3-none-{PLATFORM}")


def test_releases_of_an_index_become_rows(tmp_path: Path) -> None:
    index = tmp_path / "index"
    for version, cuda in (("2.9.1", "12.8.90"), ("2.10.0", "12.8.90"), ("2.10.1", "12.8.93"), ("2.16.0", "13.3.29")):
        write_release(index, version, cuda)
    write_release(index, "2.17.0", "13.4.1")
    (index / "nvidia-cuda-runtime" / f"nvidia_cuda_runtime-13.4.1-py3-none-{PLATFORM}.whl").unlink()
    path = tmp_path / "matrix.yaml"
    path.write_text(SMALL)
    with index_of(index, "127.0.0.1") as (url, _):
        env = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": url, "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
        words = ("propose", "--matrix", str(path), "--format", "json")
        report = json.loads(torchbake(*words, env=env).stdout)
        again = json.loads(torchbake(*words, env=env).stdout)
    assert [(each["torch"], each["accelerator"], each["replaces"]) for each in report["proposals"]] == [
        ("2.10.1", "cuda12.8", "2.10.0"),
        ("2.16.0", "cuda13.3", ""),
    ]
    reasons = {each["release"]: each["reason"] for each in report["not_proposed"]}
    assert "do not resolve" in reasons["2.17.0"]
    text = path.read_text()
    assert "  - torch: [2.10.1, 2.9.1]\n" in text
    assert "    accelerator: cuda13.3\n    base: [debian12]\n" in text
    assert again["proposals"] == []
