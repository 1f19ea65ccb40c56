"""A run of builds, on an engine and a buildx in memory: which images are there afterwards, and under which tags."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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
from tests.unit.layouts import damage
from tests.unit.processes import Process, Processes, interrupt
from torchbake.build import backend as backend_module
from torchbake.build import buildx as builder_module
from torchbake.build import processes as processes_module
from torchbake.build.bakefile import BuildJob, BuildOptions, export_spec
from torchbake.build.plan import BuildPlan
from torchbake.build.prepare import ImagePreparation
from torchbake.build.result import BuildResult
from torchbake.build.run import BuildRun
from torchbake.core.digest import file_digest
from torchbake.errors import BuildError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.image_lock import lock_path
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.labels import ID, INPUTS
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout

OLD = f"sha256:{'0' * 64}"
NO_PIP = PipConfig()
OPTIONS = BuildOptions(output=export_spec(), created="2026-01-01T00:00:00+00:00", revision="c0ffee")


@dataclass
class Site:
    """A project, an engine and a buildx."""

    project: Project
    buildx: Buildx
    processes: Processes

    @property
    def daemon(self) -> Daemon:
        return self.buildx.daemon

    @property
    def layout(self) -> Layout:
        return Layout(folder=self.project.layout)

    @property
    def layers(self) -> LayerStore:
        return LayerStore(folder=self.project.state / "layers")

    @property
    def folder(self) -> Path:
        return self.project.state / "runs/one"

    def job(self, name: str) -> BuildJob:
        return preparation_of(self.project).job(spec_of(self.project, name), BASE)

    def build(
        self, *names: str, jobs: int = 2, pip: PipConfig = NO_PIP, prune: bool = False, builder: str | None = None
    ) -> dict[str, BuildResult]:
        """The results by id."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ready = [self.job(name) for name in names]
        plan = BuildPlan(jobs=ready, reasons=dict.fromkeys(names, "not in the engine"))
        preparation: ImagePreparation = preparation_of(self.project, pip=pip)
        backend = backend_of(self.project, self.daemon, builder)
        run = BuildRun(backend=backend, preparation=preparation, prune=prune, layers=self.layers)
        return {one.id: one for one in run.run(plan, OPTIONS, AptConfig(), self.folder, jobs=jobs)}

    def name_of(self, name: str) -> str | None:
        """Return the digest that all tags of an image point at, or None if it has no tag."""
        job = self.job(name)
        (digest,) = {self.daemon.pointers.get(f"{job.spec.repository}:{tag}") for tag in job.tags}
        return digest


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(backend_module, "builder_driver", lambda builder: "docker")
    buildx = Buildx(Daemon())
    processes = Processes(buildx).stand_for(monkeypatch, builder_module, processes_module)
    return Site(project=own_template_in(small_project(tmp_path)), buildx=buildx, processes=processes)


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def test_what_was_built_has_all_its_tags_and_says_what_it_is(site: Site) -> None:
    results = site.build(RUNTIME, INIT)
    assert set(results) == {RUNTIME, INIT}
    for name, result in results.items():
        digest = site.name_of(name)
        assert digest
        picture = site.daemon.pictures[digest]
        assert picture.labels == {ID: name, INPUTS: site.job(name).inputs}
        assert (result.status, result.digest, result.size_bytes, result.exit_code) == ("built", digest, 2_000, 0)
        assert set(result.tags) == site.daemon.tags_of(digest)
        assert result.ref in result.tags
    assert len(site.job(RUNTIME).tags) > 1


def test_its_logs_and_its_bake_file_are_kept(site: Site) -> None:
    site.build(RUNTIME)
    assert "RUN install: 3.0 s" in (site.folder / f"{RUNTIME}.log").read_text()
    assert '"BASE_DIGEST"' in (site.folder / f"{RUNTIME}.bake.json").read_text()


def test_one_failure_ends_one_image_and_moves_no_tags(site: Site) -> None:
    before = [f"acme/pytorch:{tag}" for tag in site.job(RUNTIME).tags]
    site.daemon.hold(OLD, *before)
    site.buildx.failing = {RUNTIME: "E: Unable to locate package nothing"}
    results = site.build(RUNTIME, DEVEL, INIT)
    assert {name: result.status for name, result in results.items()} == {
        RUNTIME: "failed", DEVEL: "built", INIT: "built",
    }  # fmt: skip
    failed = results[RUNTIME]
    assert "Unable to locate package nothing" in failed.reason
    assert (failed.tags, failed.digest, failed.exit_code) == ((), None, BuildError.exit_code)
    assert site.name_of(RUNTIME) == OLD
    assert site.name_of(DEVEL)


def test_a_full_disk_is_told_as_such_with_a_way_out(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    message = "write /var/lib/docker/x: No space left on device"
    for words in (message, f"ERROR: failed to solve: {message}"):
        site.buildx.failing = {RUNTIME: words}
        assert site.build(RUNTIME)[RUNTIME].reason == "the engine's disk is full"
    output = capsys.readouterr().err
    assert "docker buildx prune" in output
    assert f"{RUNTIME}.log" in output.replace("\n", "")


@pytest.mark.parametrize(("times", "status"), [(1, "built"), (2, "failed")])
def test_what_buildkit_loses_track_of_is_built_once_more(times: int, status: str, site: Site) -> None:
    lost = {RUNTIME: "failed to compute cache key: failed to get state for index 0 on [builder 2/3] COPY lock /"}
    builds = list[str]()

    def lose(name: str, process: Process) -> int:
        builds.append(name)
        site.buildx.failing = lost if builds.count(RUNTIME) <= times else {}
        return 0

    site.buildx.during = lose
    assert site.build(RUNTIME)[RUNTIME].status == status
    assert builds == [RUNTIME] * 2


def test_what_the_engine_loses_was_not_built(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(engine: Any, image: str, **_: Any) -> None:
        site.daemon.pictures.pop(image)

    monkeypatch.setattr("torchbake.build.image_store.check_image", lose)
    result = site.build(RUNTIME)[RUNTIME]
    assert (result.status, result.reason) == ("failed", "built, but not in the engine")
    assert site.name_of(RUNTIME) is None


def test_an_image_whose_lock_went_meanwhile_ends_no_other(site: Site) -> None:
    jobs = [site.job(RUNTIME), site.job(DEVEL)]
    spec = spec_of(site.project, RUNTIME)
    assert isinstance(spec, ImageSpec)
    lock_path(site.project.root, spec).unlink()
    backend = backend_of(site.project, site.daemon)
    run = BuildRun(backend=backend, preparation=preparation_of(site.project), prune=False, layers=site.layers)
    plan = BuildPlan(jobs=jobs, reasons=dict.fromkeys((RUNTIME, DEVEL), ""))
    site.folder.mkdir(parents=True)
    results = {one.id: one for one in run.run(plan, OPTIONS, AptConfig(), site.folder, jobs=1)}
    assert {name: result.status for name, result in results.items()} == {RUNTIME: "failed", DEVEL: "built"}
    assert "changed while it was built" in results[RUNTIME].reason


def test_a_layer_that_changed_on_disk_is_written_again(site: Site) -> None:
    site.build(INIT)
    (layer,) = site.layers.files()
    site.daemon.pictures.clear()
    damage(layer, is_seen=False)
    site.daemon.refuses = "invalid digest"
    site.build(INIT)
    assert layer.name in file_digest(layer)
    assert len(site.buildx.targets) == 1 + 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_more_images_than_asked_for_are_built_side_by_side(site: Site, jobs: int) -> None:
    """Each stays long enough for one too many to begin."""

    def meet(*_: object) -> int:
        wait_for(lambda: site.buildx.most_at_once == jobs)
        time.sleep(0.05)
        return 0

    site.buildx.during = meet
    results = site.build(RUNTIME, DEVEL, INIT, jobs=jobs)
    assert {result.status for result in results.values()} == {"built"}
    assert site.buildx.most_at_once == jobs


@pytest.mark.parametrize(("prune", "most"), [(True, 1), (False, 3)])
def test_a_small_disk_never_holds_the_cache_of_two_images(site: Site, prune: bool, most: int) -> None:
    site.build(RUNTIME, DEVEL, INIT, jobs=1, prune=prune, builder="kube")
    assert site.buildx.most_cached == most
    assert set(site.buildx.builders) == {"kube"}


def test_a_build_reads_the_secrets_and_keeps_nothing_of_them(site: Site) -> None:
    site.build(RUNTIME, pip=PipConfig(index_url="https://me:secret@mirror.example/simple"))
    holders = {Path(place): text for place, text in site.buildx.secrets.items() if "secret@mirror" in text}
    assert holders
    assert not [place for place in holders if place.exists()]
    paths = [path for path in site.project.root.rglob("*") if path.is_file() and b"secret@mirror" in path.read_bytes()]
    assert paths == []


def test_a_packed_image_is_the_same_in_layout_and_engine(site: Site) -> None:
    results = site.build(RUNTIME, INIT)
    for name, result in results.items():
        assert result.status == "built"
        assert result.digest == site.name_of(name)
        manifest = site.layout.find(result.digest or "")
        assert manifest
        assert {blob.media_type.rpartition("+")[2] for blob in manifest.layers} == {"zstd"}
    assert not list(site.layout.folder.glob(".work-*"))


def test_packed_layers_of_images_that_are_gone_go_too(site: Site) -> None:
    first = site.build(RUNTIME)[RUNTIME].digest or ""
    site.buildx.layer = lambda *_: b"another content"
    second = site.build(RUNTIME)[RUNTIME].digest or ""
    del site.daemon.pictures[first]
    third = site.build(INIT)[INIT].digest or ""
    assert [bool(site.layout.find(digest)) for digest in (first, second, third)] == [False, True, True]


def test_a_packed_image_that_the_engine_refuses_has_failed(site: Site) -> None:
    site.daemon.refuses = "unknown compression"
    result = site.build(RUNTIME)[RUNTIME]
    assert result.status == "failed"
    assert "unknown compression" in result.reason
    assert site.name_of(RUNTIME) is None


def test_an_image_that_the_engine_cannot_use_fails_and_goes(site: Site) -> None:
    site.daemon.unusable = "failed to extract layer: invalid tar header"
    result = site.build(RUNTIME)[RUNTIME]
    assert (result.status, result.digest, result.tags) == ("failed", None, ())
    assert "invalid tar header" in result.reason
    assert site.name_of(RUNTIME) is None
    assert site.daemon.pictures == {}


def test_an_image_whose_files_change_during_the_build_has_failed(site: Site) -> None:
    before = [f"acme/pytorch:{tag}" for tag in site.job(RUNTIME).tags]
    site.daemon.hold(OLD, *before)
    lock = lock_path(site.project.root, spec_of(site.project, RUNTIME))
    text = lock.read_text()

    def during(name: str, process: Any) -> int:
        if name == RUNTIME:
            lock.write_text(text.replace("sha256:", "sha256:0", 1))
        return 0

    site.buildx.during = during
    results = site.build(RUNTIME, INIT)
    assert {name: result.status for name, result in results.items()} == {RUNTIME: "failed", INIT: "built"}
    assert results[RUNTIME].reason == "its files were changed while it was built: build it again"
    lock.write_text(text)
    assert site.name_of(RUNTIME) == OLD


def test_a_lock_that_changes_in_a_build_ends_that_image_alone(site: Site) -> None:
    lock = lock_path(site.project.root, spec_of(site.project, RUNTIME))

    def during(name: str, process: Any) -> int:
        if name == RUNTIME:
            lock.unlink()
        return 0

    site.buildx.during = during
    results = site.build(RUNTIME, INIT)
    assert {name: result.status for name, result in results.items()} == {RUNTIME: "failed", INIT: "built"}
    assert "changed while it was built" in results[RUNTIME].reason


def test_an_interrupted_build_keeps_what_is_finished(site: Site) -> None:
    tags = site.job(RUNTIME).tags

    def during(name: str, process: Any) -> int:
        if name != DEVEL:
            return 0
        wait_for(lambda: len(site.daemon.pointers) == len(tags))
        interrupt()
        return 128 + int(process.hear())

    site.buildx.during = during
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        site.build(RUNTIME, DEVEL, INIT, jobs=1)
    assert site.name_of(RUNTIME)
    assert site.name_of(DEVEL) is None
    assert site.name_of(INIT) is None
    assert [process.returncode for process in site.processes.all] == [0, 130]
    assert time.monotonic() - start < 10
