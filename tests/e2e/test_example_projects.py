"""The projects in examples/projects that have a lock for the CPU: from the lock to an image that learns something."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import images_of, torchbake
from torchbake.core.paths import TOOLKIT

pytestmark = pytest.mark.render

FOLDER = TOOLKIT / "examples/projects"
PROGRAMS = {"transformers": ("python", "finetune.py"), "lightning": ("tiny-lightning",)}
LEARNED = 2.0  # a loss; both begin above it


@pytest.mark.parametrize("name", [pytest.param("transformers", marks=pytest.mark.long), "lightning"])
def test_a_project_for_the_cpu_is_built_and_learns(
    name: str, bases: Path, tmp_path: Path, run: Callable[..., str]
) -> None:
    folder = shutil.copytree(FOLDER / name, tmp_path / name)
    words = ("--from", str(folder / "requirements-cpu.txt"), "--repository", f"torchbake-test/{name}")
    process = torchbake("init", str(folder), *words)
    assert process.returncode == 0, process.stderr
    (folder / ".torchbake").mkdir()
    (folder / ".torchbake/bases").symlink_to(bases)
    process = torchbake("build", "all", "--matrix", str(folder / "matrix.yaml"), "--format", "json")
    assert process.returncode == 0, process.stderr
    (image,) = images_of(process).values()
    output = run(image["ref"], *PROGRAMS[name])
    loss = re.search(r"loss (\d+\.\d+)", output)
    assert loss, output
    assert float(loss[1]) < LEARNED
