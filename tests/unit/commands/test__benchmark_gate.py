"""The gate before a release: an image that is slower than the release of its tag is not released."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.benchmark.cases import plan_of, printed
from tests.unit.conftest import image
from tests.unit.engines import Daemon
from tests.unit.processes import Process, Processes
from tests.unit.registries import MemoryRegistry, Store
from torchbake.commands import _benchmark_places
from torchbake.commands._benchmark_gate import Gate
from torchbake.core import processes as processes_module
from torchbake.errors import CheckError
from torchbake.matrix.project import Project
from torchbake.oci.manifest import INDEX, Manifest
from torchbake.release.candidate import Candidate

SPEC = image()
BEFORE, NOW = "sha256:" + "b" * 64, "sha256:" + "a" * 64
CANDIDATE = Candidate(id=SPEC.id, digest=NOW, labels={}, tags=(SPEC.own_tag,), verdict=None)


class Place:
    """A registry with one release, the engine, and what a batch takes in either image."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, project: Project) -> None:
        self.project = project
        self.before: Callable[[], None] = lambda: None
        manifest = Manifest(data=b"{}", media_type=INDEX)
        self.store = Store(tags={SPEC.own_tag: BEFORE}, manifests={BEFORE: manifest})
        self.registry, self.daemon = MemoryRegistry(self.store), Daemon()
        self.seconds = {BEFORE: 0.1, NOW: 0.1}
        self.processes = Processes(self.run).stand_for(monkeypatch, processes_module)
        monkeypatch.setattr(processes_module, "_LOOK", 0.001)
        monkeypatch.setattr(_benchmark_places, "registry_of", lambda repository, plain_http: self.registry)
        self.daemon.hold(BEFORE, f"{self.registry.repository}@{BEFORE}")
        self.daemon.hold(NOW, "acme/pytorch:now")

    def run(self, process: Process) -> int:
        if "--model" in process.command:
            self.before()
            process.say(printed(next(value for digest, value in self.seconds.items() if digest in process.command)))
        return 0

    def judged(self, action: str = "release", plan: str = "models: [a]\nnum_batches: 3\n") -> Candidate:
        gate = Gate(
            plan=plan_of(plan), folder=Path.cwd(), project=self.project, engine=self.daemon.engine, plain_http=False
        )
        decided: Any = SimpleNamespace(action=action)
        return gate.judge(lambda: CANDIDATE, lambda _: decided, SPEC, self.registry.repository)()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, project: Project) -> Place:
    return Place(monkeypatch, project)


def test_an_image_as_fast_as_its_release_may_be_released(place: Place) -> None:
    assert place.judged() == CANDIDATE
    assert place.processes.all


def test_a_slower_one_may_not_and_the_reason_is_told(place: Place) -> None:
    place.seconds[NOW] = 0.12
    with pytest.raises(CheckError, match=r"The second image is slower\. a training .*: slower by 20\.0%"):
        place.judged()


@pytest.mark.parametrize("action", ["nothing", "finish", "held"])
def test_what_is_not_released_anyway_is_not_compared(place: Place, action: str) -> None:
    place.seconds[NOW] = 0.12
    assert place.judged(action) == CANDIDATE
    assert place.processes.all == []


def test_a_first_release_has_nothing_to_be_slower_than(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.store.tags.clear()
    assert place.judged() == CANDIDATE
    assert "has no release yet: there is nothing to be slower than" in capsys.readouterr().err
    assert place.processes.all == []


def test_what_cannot_be_measured_is_not_released(place: Place) -> None:
    with pytest.raises(CheckError, match="a CPU image has no use for a GPU"):
        place.judged(plan="models: [a]\ngpus: 1\n")


def test_what_needs_a_gpu_is_left_out_of_a_cpu_image_and_said(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.judged(plan="models: [a]\ngpus: [0, 1]\n") == CANDIDATE
    assert "left out: a training float32 batch 16 1 gpu in " in capsys.readouterr().err
    assert place.processes.all


@pytest.mark.parametrize("word", ["2.10.0 cuda12.8 runtime", SPEC.id])
def test_what_the_plan_excludes_by_any_word_is_not_measured(
    place: Place, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    plan = f"models: [a, b]\nexclude: [{{image: {word}, model: b, reason: a good reason}}]\n"
    assert place.judged(plan=plan) == CANDIDATE
    commands = [process.command for process in place.processes.all if "--model" in process.command]
    assert {command[command.index("--model") + 1] for command in commands} == {"a"}
    place.processes.all.clear()
    assert place.judged(plan=f"models: [a]\nexclude: [{{image: {word}, reason: a good reason}}]\n") == CANDIDATE
    assert "the plan excludes all of its experiments" in capsys.readouterr().err
    assert place.processes.all == []


def test_a_machine_that_wavers_is_told_with_what_a_plan_can_say(place: Place) -> None:
    times = iter([0.1, 0.3, 0.05, 0.2, 0.15, 0.07] * 60)

    def waver() -> None:
        place.seconds = dict.fromkeys(place.seconds, next(times))

    place.before = waver
    with pytest.raises(CheckError, match="too noisy") as caught:
        place.judged()
    assert caught.value.hint == "End what else runs, or give the plan more num_batches."
