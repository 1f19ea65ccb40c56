"""`build` by the command line, on an engine in memory: which images stay as they are, and which are built."""

import json
import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.unit.builds import BASE, DEVEL, INIT, RUNTIME, preparation_of, small_project, spec_of, write_lock
from tests.unit.engines import Daemon
from torchbake import cli
from torchbake.build import images
from torchbake.build.bakefile import BuildJob
from torchbake.build.images import ImageBuild
from torchbake.build.plan import BuildPlan
from torchbake.build.result import BuildResult
from torchbake.commands import build
from torchbake.core.files import write_text
from torchbake.errors import BaseError, EngineError, HostConfigError, RenderError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec
from torchbake.oci.labels import ID, INPUTS
from torchbake.store.layout import Layout
from torchbake.store.rootfs_image import write_rootfs_image

NAMES = (RUNTIME, DEVEL, INIT)
OTHER = f"sha256:{'f' * 64}"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A project whose images are all in an engine. ``plans`` are those of builds."""

    project: Project
    daemon: Daemon
    capsys: pytest.CaptureFixture[str]
    plans: list[BuildPlan] = field(default_factory=list)

    def job(self, name: str) -> BuildJob:
        return preparation_of(self.project).job(spec_of(self.project, name), BASE)

    def build(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """Run a build: its exit code, its results by the images' ids, and stderr."""
        self.plans.clear()
        self.capsys.readouterr()
        matrix = str(self.project.document.path)
        code = cli.main(["build", "cpu", "volume-permissions", "--format", "json", "--matrix", matrix, *words])
        out, err = self.capsys.readouterr()
        return code, {image["id"]: image for image in json.loads(out)["images"]} if out else {}, err


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Site:
    site = Site(project=small_project(tmp_path / "project"), daemon=Daemon(), capsys=capsys)

    def keep(_: ImageBuild, plan: BuildPlan, *__: object) -> list[BuildResult]:
        site.plans.append(plan)
        return []

    write_text(site.project.state / "bases/debian12.json", json.dumps(BASE.__dict__))
    for number, name in enumerate(NAMES):
        job = site.job(name)
        labels = {ID: name, INPUTS: job.inputs}
        site.daemon.hold(f"sha256:{number:064}", *job.references, labels=labels, unpacked=number)
    monkeypatch.setattr(build, "connect", lambda: site.daemon.engine)
    monkeypatch.setattr(ImageBuild, "_build", keep)
    monkeypatch.setattr(images, "read_apt_config", AptConfig)  # it would ask apt
    return site


def test_images_that_are_all_there_are_up_to_date_and_not_built(site: Site) -> None:
    for _ in range(2):
        code, results, _ = site.build()
        assert (code, site.plans) == (0, [])
        assert {name: results[name]["status"] for name in NAMES} == dict.fromkeys(NAMES, "up-to-date")
        assert [results[name]["size_bytes"] for name in NAMES] == [0, 1, 2]
        assert {results[name]["platform"] for name in NAMES} == {"linux/amd64"}


def test_a_tag_of_an_image_that_is_up_to_date_is_put_back(site: Site) -> None:
    job = site.job(RUNTIME)
    site.daemon.hold(OTHER, job.references[-1])
    right = site.daemon.pointers[job.ref]
    assert "1 tags corrected" in site.build()[1][RUNTIME]["reason"]
    assert site.daemon.pointers[job.references[-1]] == right
    assert "put right" not in site.build()[1][RUNTIME]["reason"]


def test_an_image_that_is_gone_or_of_other_inputs_is_built(site: Site) -> None:
    del site.daemon.pointers[site.job(INIT).ref]
    devel = site.job(DEVEL)
    site.daemon.hold(OTHER, *devel.references, labels={ID: DEVEL, INPUTS: OTHER})
    site.build()
    assert {job.spec.id for job in site.plans[0].jobs} == {INIT, DEVEL}
    site.build("--no-cache")
    assert {job.spec.id for job in site.plans[0].jobs} == {*NAMES}


def test_a_lock_that_changes_builds_its_image_again(site: Site) -> None:
    write_lock(site.project, RUNTIME, numpy="2.4.7")
    site.build()
    assert [job.spec.id for job in site.plans[0].jobs] == [RUNTIME]


def test_an_image_whose_labels_git_contradicts_is_built_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "untrue_label", lambda root, labels: "its label is empty")
    site.build()
    assert site.plans[0].reasons == dict.fromkeys(NAMES, "its label is empty")


def test_a_bootstrapped_base_is_hashed_before_a_build(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(spec: BaseSpec, *_: object, **__: object) -> NoReturn:
        raise BaseError(f"{spec.name} is made again")

    layout = site.project.state / "bases/debian12"
    tarfile.open(tmp_path / "rootfs.tar", "w").close()
    rootfs, created = tmp_path / "rootfs.tar", "2025-01-01T00:00:00Z"
    digest = write_rootfs_image(rootfs, Layout(folder=layout), created=created, created_by="test")
    record = {**BASE.__dict__, "source": "bootstrap", "digest": digest}
    write_text(site.project.state / "bases/debian12.json", json.dumps(record))
    monkeypatch.setattr(images, "make_base", refuse)
    assert "made again" not in site.build()[2]
    blob = min((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)  # the layer
    times = blob.stat().st_atime_ns, blob.stat().st_mtime_ns
    blob.write_bytes(blob.read_bytes()[::-1])
    os.utime(blob, ns=times)  # neither its size nor its time shows it
    assert "debian12 is made again" in site.build()[2]


def test_what_ends_a_build_before_it_begins_leaves_nothing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text("no section\n")
    assert site.build()[0] == HostConfigError.exit_code

    def refuse() -> NoReturn:
        raise EngineError("no engine")

    monkeypatch.setattr(build, "connect", refuse)
    before = {*site.project.root.rglob("*")}
    assert site.build()[0] == EngineError.exit_code
    assert {*site.project.root.rglob("*")} == before


def test_a_wrong_template_fails_before_a_base_is_made(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.project.state / "bases/debian12.json").unlink()
    monkeypatch.setattr(images, "make_base", lambda *_, **__: pytest.fail("a base takes minutes"))
    text = '{% extends "toolkit/pytorch.Dockerfile.j2" %}\n{% block before_user %}\nRNU true\n{% endblock %}\n'
    path = site.project.root / "templates/pytorch.Dockerfile.j2"
    write_text(path, text)
    assert cli.main(["render", RUNTIME, "--matrix", str(site.project.document.path)]) == RenderError.exit_code
    assert f"{path}:3: Docker has no instruction RNU" in site.capsys.readouterr().err
    code, results, _ = site.build("!volume-permissions")
    assert code != 0
    assert not site.plans
    assert f"{path}:3: Docker has no instruction RNU" in results[RUNTIME]["reason"]
