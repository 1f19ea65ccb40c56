"""`prove`: from locks to a real registry, one image after the other, and the page of the results."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import CPU, INIT, ROOT, images_of, torchbake
from tests.e2e.registries import Running, registry
from torchbake.core.digest import short_digest

pytestmark = pytest.mark.proof

ROWS = "init: {volume-permissions: {version: 9.9.9, base: debian12}}\n"
CPU_ROW = "rows: [{torch: 2.13.0, accelerator: cpu, base: debian12, flavor: runtime}]\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(ROOT / ".torchbake/tools", tmp_path_factory.mktemp("registry")) as running:
        yield running


def test_all_images_are_pushed_and_a_failure_delays_no_other(project: Callable[..., Path], running: Running) -> None:
    path = project(CPU_ROW + ROWS, repository="torchbake-test/proof/pytorch")
    author = ["-c", "user.name=tester", "-c", "user.email=tester@example.com"]
    for step in (["init", "-q"], ["add", "matrix.yaml"], ["commit", "-qm", "a matrix"]):
        subprocess.run(["git", *author, *step], cwd=path.parent, check=True)
    words = ("prove", "--matrix", str(path), "--registry", f"{running.host}/team", "--format", "json")
    process = torchbake(*words)
    assert process.returncode == 13, process.stderr
    images = images_of(process)
    assert {name: image["state"] for name, image in images.items()} == {CPU: "failed", INIT: "passed"}
    assert images[CPU]["problem"].startswith("build: ")
    assert images[INIT]["compressed_bytes"] > 0
    assert images[INIT]["counts"]["passed"] > 20
    assert images[INIT]["tag"] == "9.9.9-r0"
    page = (path.parent / "docs/images.md").read_text()
    assert short_digest(images[INIT]["digest"]) in page
    assert CPU in page.partition("## Failed")[2]

    assert torchbake("prove", "--check", "--matrix", str(path)).returncode == 13
    again = torchbake(*words, INIT)
    assert again.returncode == 0, again.stderr
    assert images_of(again)[INIT]["tested"] == images[INIT]["tested"], "what has passed was done again"
    process = torchbake("prove", INIT, "--check", "--matrix", str(path))
    assert process.returncode == 0, process.stderr

    dockerfile = path.parent / "images" / INIT / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text() + "# a comment is in no layer\n")
    assert torchbake("prove", INIT, "--check", "--matrix", str(path)).returncode == 0
    dockerfile.write_text(dockerfile.read_text() + "ENV ANOTHER=1\n")
    process = torchbake("prove", INIT, "--check", "--matrix", str(path), "--format", "json")
    assert process.returncode == 13
    assert images_of(process)[INIT]["state"] == "stale"


def test_a_killed_run_keeps_what_it_finished(project: Callable[..., Path], running: Running) -> None:
    path = project(CPU_ROW + ROWS, repository="torchbake-test/proof/pytorch")
    shutil.copytree(ROOT / "images" / INIT, path.parent / "images" / INIT)
    dry = ("prove", INIT, "--dry-run", "--matrix", str(path), "--format", "json")
    assert images_of(torchbake(*dry))[INIT]["state"] == "missing"
    record = {"id": INIT, "files": "sha256:0", "revision": "", "tested": "2026-01-01T00:00:00+00:00"}
    (path.parent / ".torchbake/proofs.json").write_text(json.dumps([record]))
    assert images_of(torchbake(*dry))[INIT]["state"] == "stale"  # read, and of other files
