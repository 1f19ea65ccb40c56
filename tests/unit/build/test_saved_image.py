"""Builds on Docker's classic store: what is in the engine, in the layout and under which names afterwards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.build.test_run import OPTIONS, Site
from tests.unit.builds import (
    BASE,
    DEVEL,
    INIT,
    RUNTIME,
    Buildx,
    backend_of,
    own_template_in,
    preparation_of,
    small_project,
    spec_of,
)
from tests.unit.engines import Daemon
from tests.unit.layouts import archive, blobs_of, file, put
from tests.unit.processes import Processes
from torchbake.build import backend as backend_module
from torchbake.build import buildx as builder_module
from torchbake.build import processes as processes_module
from torchbake.build.bakefile import into_engine
from torchbake.build.base_image import BaseImage
from torchbake.build.plan import BuildPlan
from torchbake.build.result import BuildResult
from torchbake.build.run import BuildRun
from torchbake.engine.leftovers import building_name
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.store.layout import Layout

ROOT = archive(file("etc/debian_version", b"12"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(backend_module, "builder_driver", lambda builder: "docker")
    buildx = Buildx(Daemon(containerd=False))
    processes = Processes(buildx).stand_for(monkeypatch, builder_module, processes_module)
    return Site(project=own_template_in(small_project(tmp_path)), buildx=buildx, processes=processes)


@pytest.fixture
def base(site: Site, tmp_path: Path) -> BaseImage:
    """A bootstrapped base, which the engine lacks."""
    state = site.project.state
    digest = put(Layout(folder=tmp_path / "base"), ROOT)
    product = BaseImage(**{**BASE.__dict__, "source": "bootstrap", "digest": digest})
    Layout(folder=product.layout(state)).take(tmp_path / "base", digest)
    return product


def build(site: Site, *names: str, base: BaseImage = BASE, **options: Any) -> Mapping[str, BuildResult]:
    backend = backend_of(site.project, site.daemon)
    preparation = preparation_of(site.project)
    jobs = [backend.on_engine(preparation.job(spec_of(site.project, name), base)) for name in names]
    plan = BuildPlan(jobs=jobs, reasons=dict.fromkeys(names, "not in the engine"))
    run = BuildRun(backend=backend, preparation=preparation, prune=False, layers=site.layers)
    site.folder.mkdir(parents=True, exist_ok=True)
    how = type(OPTIONS)(**{**OPTIONS.__dict__, "output": backend.output, **options})
    return {one.id: one for one in run.run(plan, how, AptConfig(), site.folder, jobs=2)}


def names_in(daemon: Daemon) -> set[str]:
    return {name for name in daemon.pointers if not name.startswith("acme/")}


def test_a_built_image_is_kept_packed_and_known_by_its_config(site: Site) -> None:
    results = build(site, RUNTIME, INIT)
    for name, result in results.items():
        assert (result.status, result.digest) == ("built", site.name_of(name))
        manifest = site.layout.find(result.digest or "")
        assert manifest
        assert manifest.config.digest == result.digest != manifest.digest
    assert names_in(site.daemon) == set()
    assert len(site.daemon.pictures) == len(results)
    first, second = (target["output"][0].partition(",name=") for target in site.buildx.targets)
    assert first[0] == second[0] == into_engine()
    assert first[2] != second[2]


def test_packed_layers_of_images_that_are_gone_go_too(site: Site) -> None:
    first = build(site, RUNTIME)[RUNTIME].digest or ""
    site.buildx.layer = lambda *_: b"another content"
    second = build(site, RUNTIME)[RUNTIME].digest or ""
    del site.daemon.pictures[first]
    third = build(site, INIT)[INIT].digest or ""
    assert [bool(site.layout.find(digest)) for digest in (first, second, third)] == [False, True, True]


def test_a_failed_build_leaves_no_name_and_no_tag(site: Site) -> None:
    def refuse() -> None:
        site.daemon.refuses = "unknown compression"

    def lose() -> None:
        site.daemon.refuses, site.buildx.loses = "", (RUNTIME,)

    def fail() -> None:
        site.buildx.failing = {RUNTIME: "E: Unable to locate package nothing"}

    for words, begin in (("unknown compression", refuse), ("does not have", lose), ("Unable to locate", fail)):
        begin()
        result = build(site, RUNTIME)[RUNTIME]
        assert (result.status, result.digest, result.tags) == ("failed", None, ())
        assert words in result.reason
        assert site.daemon.pointers == {}


def test_an_image_that_another_name_holds_stays_after_a_build(site: Site) -> None:
    """Two builds of one image can give the same ID."""
    digest = build(site, INIT)[INIT].digest or ""
    assert build(site, INIT)[INIT].digest == digest
    assert site.name_of(INIT) == digest


def test_a_bootstrapped_base_is_imported_once(site: Site, base: BaseImage) -> None:
    for names in ((RUNTIME, DEVEL), (INIT,)):
        assert {result.status for result in build(site, *names, base=base, pull=True).values()} == {"built"}
    name = ":".join(base.name_in_engine)
    config = blobs_of(Layout(folder=base.layout(site.project.state)), base.digest)[-1].name
    assert site.daemon.pointers[name] == f"sha256:{config}"
    assert names_in(site.daemon) == {name}
    assert site.daemon.loads == len((RUNTIME, DEVEL, INIT, "base"))
    for target in site.buildx.targets:
        assert f"docker-image://{name}" in target["contexts"].values()
        assert "pull" not in target  # no registry has the base


def test_another_image_under_the_name_of_a_base_is_no_base(site: Site, base: BaseImage) -> None:
    site.daemon.hold("sha256:other", ":".join(base.name_in_engine))
    build(site, INIT, base=base)
    assert site.daemon.pointers[":".join(base.name_in_engine)] != "sha256:other"


def test_a_base_that_the_engine_refuses_ends_its_images_alone(site: Site, base: BaseImage) -> None:
    site.daemon.refuses = "unknown compression"
    result = build(site, INIT, base=base)[INIT]
    assert result.status == "failed"
    assert "unknown compression" in result.reason
    assert site.buildx.targets == []


def test_a_name_of_a_build_is_one_that_leftovers_are_known_by(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [building_name("ab"), building_name("cd")]
    for name in names:
        site.daemon.hold(f"sha256:{name}", name)
    build(site, INIT)
    assert names_in(site.daemon) == set(names)  # of a process that lives
    monkeypatch.setattr("torchbake.engine.leftovers.has_ended", lambda owner, same_machine: bool(owner))
    build(site, INIT)
    assert names_in(site.daemon) == set()


def test_an_image_for_steps_above_it_has_a_name_meanwhile(site: Site, tmp_path: Path) -> None:
    whole = Layout(folder=tmp_path / "whole")
    digest = put(Layout(folder=tmp_path / "rest"), ROOT)
    whole.take(tmp_path / "rest", digest)
    saving = backend_of(site.project, site.daemon).saving
    assert saving
    with saving.offer(whole, digest) as context:
        name = context.removeprefix("docker-image://")
        assert site.daemon.pointers[name] == whole.get(digest).config.digest
    assert names_in(site.daemon) == set()
