"""Attacks on a host, a build, a verdict or a release, each of which had success once."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tests.e2e import registries
from tests.e2e.conftest import INIT, ROOT, images_of, torchbake
from torchbake.checks.statement import read_statement, statement_text
from torchbake.errors import StorageError

pytestmark = pytest.mark.build

Project = Callable[..., Path]

ROWS = """\
rows: [{torch: 2.13.0, accelerator: cpu, base: debian12}]
init: {volume-permissions: {version: 1.0.0, base: debian12}}
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A real one on a free loopback port; ``host:port``."""
    with registries.registry(ROOT / ".torchbake/tools", tmp_path) as running:
        yield running.host


def test_state_that_was_edited_releases_nothing(project: Project, registry: str) -> None:
    """A verdict of any one check, of any toolkit, was enough to publish; so was an image with an empty revision."""
    path = project(ROWS, repository="torchbake-test/edited/pytorch")
    words = (INIT, "--matrix", str(path), "--format", "json")
    built = images_of(torchbake("build", *words))[INIT]
    assert torchbake("test", *words).returncode == 0

    def problem() -> str:
        process = torchbake("publish", *words, "--registry", f"{registry}/team", "--dry-run")
        return str(json.loads(process.stdout)["images"][0]["problem"])

    assert problem() == ""
    (verdict,) = (file for file in (path.parent / "reports" / INIT).glob("*.json"))
    text = verdict.read_text()
    stored_item = read_statement(text.encode())
    for change, reason in (
        ({"checks": stored_item.checks[1:]}, f"lacks 1 of today's checks: {stored_item.checks[0].id}"),
        ({"suite": "sha256:another"}, "was tested by other checks than today's"),
    ):
        verdict.write_text(statement_text(stored_item.model_copy(update=change)))
        assert reason in problem()
    verdict.write_text(text.replace(stored_item.checks[0].id, "files.other", 1))  # the two halves differ
    assert "has not been tested" in problem()
    verdict.write_text(text)
    commit(path.parent)
    assert "org.opencontainers.image.revision is empty" in problem()
    again = images_of(torchbake("build", *words))[INIT]
    assert (again["status"], again["digest"] != built["digest"]) == ("built", True)
    assert images_of(torchbake("build", *words))[INIT]["status"] == "up-to-date"
    assert torchbake("test", *words).returncode == 0
    assert problem() == ""


def test_another_users_link_is_not_followed_by_root(project: Project, tmp_path: Path) -> None:
    """The owner of a project chose, by a link in reports/, the file that root replaced."""
    if os.geteuid():
        pytest.skip("not run: this test gives a link away, as root")
    path, victim = project(ROWS), tmp_path / "victim"
    victim.write_text("root's")
    (path.parent / "reports").mkdir()
    link = path.parent / "reports/summary.md"
    link.symlink_to(victim)
    os.lchown(link, 54321, 54321)
    process = torchbake("test", INIT, "--matrix", str(path))
    assert process.returncode == StorageError.exit_code, process.stderr
    assert str(link) in process.stderr
    assert victim.read_text() == "root's"


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
    Path(path).write_text(Path(path).read_text().replace("test/variables/", "test/other-variables/"))
    process = torchbake("build", INIT, "--matrix", path, "--format", "json", env=shell)
    assert process.returncode == 0, process.stderr
    again = images_of(process)[INIT]
    assert again["status"] == "built"
    labels = [engine.images.get(image["ref"]).labels for image in (plain, again)]
    assert labels[0].keys() == labels[1].keys()
    assert process.stderr.count("BUILDX_GIT_LABELS") == 1
