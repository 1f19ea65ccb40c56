"""Attacks on a host, a build, a verdict or a release, each of which had success once."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from tests.e2e.conftest import INIT, ROOT, images_of, torchbake

pytestmark = pytest.mark.build

Project = Callable[..., Path]

ROWS = """\
rows: [{torch: 2.13.0, accelerator: cpu, base: debian12}]
init: {volume-permissions: {version: 1.0.0, base: debian12}}
"""


def test_a_base_is_the_same_whoever_bootstraps_it(project: Project, bases: Path) -> None:
    """The umask and the owner of a file of this host were those of apt's sources in the base."""
    path = project(ROWS)
    (path.parent / ".torchbake/bases").unlink()
    words = ["base", INIT, "--source", "bootstrap", "--refresh", "--matrix", str(path)]
    command = ["sh", "-c", 'umask 077; exec "$@"', "sh", sys.executable, "-m", "torchbake", *words]
    subprocess.run(command, cwd=ROOT, check=True)
    records = [
        json.loads((folder / "debian12.json").read_text()) for folder in (bases, path.parent / ".torchbake/bases")
    ]
    if records[0]["source"] != "bootstrap":
        pytest.skip("not run: the other base is a registry's")
    assert records[0]["digest"] == records[1]["digest"]


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
