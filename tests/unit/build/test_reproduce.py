"""Two cold builds and their comparison, on a buildx in memory: the messages, and the removal of both builds."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.builds import (
    BASE,
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
from tests.unit.processes import Process, Processes, interrupt
from torchbake.build import backend as backend_module
from torchbake.build import buildx as builder_module
from torchbake.build import processes as processes_module
from torchbake.build.bakefile import BuildOptions
from torchbake.build.reproduce import Reproduction, ReproductionResult
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.matrix.project import Project
from torchbake.ui.progress_board import Board


@dataclass
class Bench:
    project: Project
    buildx: Buildx
    processes: Processes

    @property
    def logs(self) -> Path:
        return self.project.state / "runs/one"

    def reproduce(
        self, name: str = RUNTIME, *, builders: tuple[str | None, str | None] = (None, None), index: str = ""
    ) -> ReproductionResult:
        preparation = preparation_of(self.project, pip=PipConfig(index_url=index))
        one, other = (backend_of(self.project, self.buildx.daemon, builder) for builder in builders)
        reproduction = Reproduction(
            preparation=preparation,
            options=BuildOptions(output="", created="2026-01-01T00:00:00+00:00", revision="c0ffee"),
            apt=AptConfig(),
            backends=(one, other),
            logs=self.logs,
        )
        return reproduction.of(preparation.job(spec_of(self.project, name), BASE), Board(None, 1, "reproducing"))

    def left(self) -> set[str]:
        return {path.name for path in self.logs.rglob("*")}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(backend_module, "builder_driver", lambda builder: "docker")
    buildx = Buildx(Daemon())
    processes = Processes(buildx).stand_for(monkeypatch, builder_module, processes_module)
    return Bench(project=own_template_in(small_project(tmp_path)), buildx=buildx, processes=processes)


@pytest.mark.parametrize("name", [RUNTIME, INIT])
def test_builds_of_the_same_bytes_are_the_same(bench: Bench, name: str) -> None:
    value = bench.reproduce(name)
    assert value.good
    assert value.comparison
    assert len(set(value.comparison.digests)) == 1
    assert (value.comparison.equal, value.comparison.layers) == (1, 1)


def test_builds_that_differ_are_reported_with_the_file(bench: Bench) -> None:
    bench.buildx.layer = lambda _, number: f"build {number}".encode()
    value = bench.reproduce()
    assert not value.good
    assert value.problem == ""
    assert value.comparison
    assert value.comparison.equal == 0
    assert "content" in str(value.comparison.differences)


@pytest.mark.parametrize(("failing", "which"), [(1, "first"), (2, "second")])
def test_a_build_that_fails_is_named_with_its_reason_and_its_log(bench: Bench, failing: int, which: str) -> None:
    def during(name: str, _: Process) -> int:
        bench.buildx.failing = {name: "E: no such package"} if len(bench.buildx.targets) == failing else {}
        return 0

    bench.buildx.during = during
    value = bench.reproduce()
    assert not value.good
    assert value.comparison is None
    log = bench.logs / f"{RUNTIME}-{which}.log"
    assert value.problem.startswith(f"The {which} build failed: E: no such package")
    assert str(log) in value.problem
    assert "no such package" in log.read_text()
    assert len(bench.buildx.targets) == failing


def test_both_builds_are_cold_and_each_has_a_place_of_its_own(bench: Bench) -> None:
    bench.reproduce(builders=("one", "two"))
    first, second = bench.buildx.targets
    assert (first["no-cache"], second["no-cache"]) == (True, True)
    assert first["output"] != second["output"]
    assert bench.buildx.builders == ["one", "two"]
    assert bench.buildx.most_at_once == 1


def test_nothing_is_left_but_the_logs(bench: Bench) -> None:
    bench.reproduce(index="https://me:secret@mirror.example/simple")
    assert bench.left() == {
        f"{RUNTIME}-{which}{suffix}" for which in ("first", "second") for suffix in (".log", ".json", ".bake.json")
    }
    assert any("secret@mirror" in text for text in bench.buildx.secrets.values())
    assert not [place for place in bench.buildx.secrets if Path(place).exists()]


def test_the_engine_has_the_images_that_it_had(bench: Bench) -> None:
    bench.buildx.daemon.hold("sha256:before", "acme/pytorch:before")
    bench.reproduce()
    assert set(bench.buildx.daemon.pictures) == {"sha256:before"}
    assert bench.buildx.daemon.pointers == {"acme/pytorch:before": "sha256:before"}


def test_interrupted_it_ends_the_build_and_leaves_no_image(bench: Bench) -> None:
    def during(_: str, process: Process) -> int:
        threading.Timer(0.2, interrupt).start()
        return 128 + process.hear()

    bench.buildx.during = during
    with pytest.raises(KeyboardInterrupt):
        bench.reproduce()
    assert [process.returncode for process in bench.processes.all] == [130]
    assert not [name for name in bench.left() if name.startswith(".")]


def nothing() -> ReproductionResult:
    return ReproductionResult(id="a")


@pytest.mark.parametrize("make", [nothing, lambda: ReproductionResult(id="a", problem="no network")])
def test_what_was_not_compared_is_not_the_same(make: Callable[[], ReproductionResult]) -> None:
    assert not make().good
