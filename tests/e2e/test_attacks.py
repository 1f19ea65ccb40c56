"""Attacks on a host, a build, a verdict or a release, each of which had success once."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from tests.e2e.conftest import INIT, images_of, torchbake

pytestmark = pytest.mark.build

Project = Callable[..., Path]

ROWS = """\
rows: [{torch: 2.13.0, accelerator: cpu, base: debian12}]
init: {volume-permissions: {version: 1.0.0, base: debian12}}
"""


def commit(folder: Path) -> None:
    """Make a folder a repository with one commit."""
    for words in (["init", "-q"], ["add", "matrix.yaml"], ["commit", "-q", "-m", "The matrix"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", folder, *words], check=True)


def test_no_variable_of_the_shell_changes_an_image(project: Project, engine: docker.DockerClient) -> None:
    """buildx adds labels of git for one of these, and would write another output for the other."""
    path = str(project(ROWS, repository="torchbake-test/variables/pytorch"))
    commit(Path(path).parent)
    plain = images_of(torchbake("build", INIT, "--matrix", path, "--format", "json"))[INIT]
    shell = {"BUILDX_GIT_LABELS": "full", "DOCKER_DEFAULT_PLATFORM": "linux/arm64"}
    done = torchbake("build", INIT, "--no-cache", "--matrix", path, "--format", "json", env=shell)
    assert done.returncode == 0, done.stderr
    again = images_of(done)[INIT]
    labels = [engine.images.get(image["ref"]).labels for image in (plain, again)]
    assert labels[0].keys() == labels[1].keys()
    assert done.stderr.count("BUILDX_GIT_LABELS") == 1
