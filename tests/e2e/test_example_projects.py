"""The projects in examples/projects that have a lock for the CPU: from the lock to an image that learns something.

By default only to a lock and a Dockerfile, for the project whose package has build requirements. The unit tests do it
for the others, and tests/e2e/test_project_images.py builds images of smaller projects.
"""

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


def init(name: str, folder: Path) -> Path:
    """Make a matrix for a copy of the project, and return the matrix."""
    shutil.copytree(FOLDER / name, folder)
    words = ("--from", str(folder / "requirements-cpu.txt"), "--repository", f"torchbake-test/{name}")
    process = torchbake("init", str(folder), *words)
    assert process.returncode == 0, process.stderr
    return folder / "matrix.yaml"


def test_a_package_with_build_requirements_is_locked(tmp_path: Path) -> None:
    matrix = init("lightning", tmp_path / "lightning")
    for command in ("lock", "render"):
        process = torchbake(command, "all", "--matrix", str(matrix))
        assert process.returncode == 0, process.stderr
    (lock,) = matrix.parent.glob("images/*/requirements.lock")
    assert {"torch", "lightning"} <= set(re.findall(r"(?m)^([a-z0-9-]+)==", lock.read_text()))
    assert "hatchling" in lock.read_text()
    assert lock.with_name("Dockerfile").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["transformers", "lightning"])
def test_a_project_for_the_cpu_is_built_and_learns(
    name: str, bases: Path, tmp_path: Path, run: Callable[..., str]
) -> None:
    matrix = init(name, tmp_path / name)
    (matrix.parent / ".torchbake").mkdir()
    (matrix.parent / ".torchbake/bases").symlink_to(bases)
    process = torchbake("build", "all", "--matrix", str(matrix), "--format", "json")
    assert process.returncode == 0, process.stderr
    (image,) = images_of(process).values()
    output = run(image["ref"], *PROGRAMS[name])
    loss = re.search(r"loss (\d+\.\d+)", output)
    assert loss, output
    assert float(loss[1]) < LEARNED
