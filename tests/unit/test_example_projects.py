"""The projects in examples/projects: from each lock to a matrix, an image's lock and a Dockerfile."""

import shutil
from pathlib import Path

import pytest
import requests

from tests.unit.test_cli import out
from torchbake.core.paths import TOOLKIT
from torchbake.lock import yanked
from torchbake.lock.image_lock import read_lock
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import pytorch_of
from torchbake.projects.lock import MOST_HEAVY
from torchbake.render.dockerfile import dockerfile_path

FOLDER = TOOLKIT / "examples/projects"
CUTLASS = ("nvidia-cutlass-dsl-libs-cu12", "nvidia-cutlass-dsl-libs-cu13")
# Some of the large wheels of each, which get a layer each. The package of `lightning` needs build requirements from an
# index.
PROJECTS = {
    "transformers": {"numpy", "transformers"},
    "vllm": {
        *CUTLASS,
        "flashinfer-python",
        "llvmlite",
        "opencv-python-headless",
        "tilelang",
        "tokenspeed-triton",
        "vllm",
    },
    "sglang": {*CUTLASS, "flashinfer-python", "llvmlite", "pyarrow", "sglang-kernel", "tilelang"},
}


COMPILERS = {"nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-nvcc", "nvidia-nvvm"}


def silent_index(*_: object) -> tuple[str, str]:
    raise requests.ConnectionError


@pytest.mark.usefixtures("own_processes")
def test_each_lock_becomes_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(yanked, "fetch_page", silent_index)
    for name, large in PROJECTS.items():
        folder = shutil.copytree(FOLDER / name, tmp_path / name)
        monkeypatch.chdir(folder)
        out(capsys, "init", "--from", ".")
        out(capsys, "lock", "all")
        out(capsys, "render", "all")
        project = load_project(folder / "matrix.yaml")
        (spec,) = pytorch_of(project.expansion.specs)
        lock = read_lock(folder, spec)
        assert large <= {pin.name for pin in lock.layers["heavy"]}, name
        assert len(lock.layers["heavy"]) <= MOST_HEAVY
        compilers = {pin.name for pin in lock.layers["devel"]}
        assert compilers == (set() if name == "transformers" else COMPILERS), name
        text = dockerfile_path(folder, spec).read_text()
        assert all(f"COPY --link --from=heavy /layers/{wheel} /packages" in text for wheel in large)
