"""A run of the image checks, on suites in memory: which verdicts there are, whatever a suite does."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.processes import Process, Processes, interrupt
from torchbake.checks import pytest_run as module
from torchbake.checks.pytest_run import SUITE_CHECK, CheckOptions, CheckTarget, Suite, TestRun
from torchbake.checks.verdict import CheckResult, Outcome, Verdict, dump_results

PASSED, FAILED, NOT_RUN = Outcome.PASSED, Outcome.FAILED, Outcome.NOT_RUN
Streams = pytest.CaptureFixture[str]


def check(name: str = "files.setuid", outcome: Outcome = PASSED, reason: str = "") -> CheckResult:
    return CheckResult(id=name, outcome=outcome, reason=reason)


def target(name: str, **changes: Any) -> CheckTarget:
    arguments: dict[str, Any] = {
        "name": name, "ref": f"acme/pytorch:{name}", "row": name, "digest": f"sha256:{name}", "suite": "sha256:suite",
    }  # fmt: skip
    return CheckTarget(**arguments | changes)


@dataclass
class Suites:
    """pytest in memory. ``matches`` are the checks that it writes, by image; ``does`` are further actions, by image."""

    folder: Path
    matches: dict[str, Iterable[CheckResult]] = field(default_factory=dict)
    does: dict[str, Callable[[Process], int]] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    running: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, process: Process) -> int:
        name = process.option("--image").partition(":")[2]
        with self.lock:
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
        code = self.does[name](process) if name in self.does else 0
        with self.lock:
            self.running -= 1
        if name in self.matches:
            checks = tuple(self.matches[name])
            Path(process.option("--results")).write_text(dump_results(checks))
            code = code or int(any(one.outcome is FAILED for one in checks))
        return code

    def run(self, *targets: CheckTarget, jobs: int = 2, **options: Any) -> dict[str, Verdict]:
        """The verdicts by name, in the order in which they came."""
        suite = Suite(Path("tests/images"), CheckOptions(**options), cwd=self.folder)
        verdicts = TestRun(suite=suite, folder=self.folder, keep=self.keep).run(targets, jobs=jobs)
        return {one.id: one for one in verdicts}

    def keep(self, tested: CheckTarget, verdict: Verdict) -> Path:
        self.verdicts[tested.name] = verdict
        return self.folder / f"{tested.name}.md"


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suites:
    suites = Suites(folder=tmp_path)
    monkeypatch.setattr(module, "_LOOK", 0.01)
    return suites


@pytest.fixture
def processes(suites: Suites, monkeypatch: pytest.MonkeyPatch) -> Processes:
    return Processes(suites).stand_for(monkeypatch, module)


def wait_for(what: Callable[[], object]) -> int:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)
    return 0


@pytest.mark.usefixtures("processes")
def test_each_image_has_its_verdict_in_the_order_requested(suites: Suites) -> None:
    """The first one ends last."""
    suites.matches = {"a": [check()], "b": [check(outcome=FAILED, reason="it is there")], "c": [check(outcome=NOT_RUN)]}
    suites.does = {"a": lambda _: wait_for(lambda: {"b", "c"} <= set(suites.verdicts))}
    verdicts = suites.run(target("a"), target("b"), target("c"))
    assert list(verdicts) == ["a", "b", "c"]
    assert [one.outcome for one in verdicts.values()] == [PASSED, FAILED, NOT_RUN]
    assert suites.verdicts == verdicts
    one = verdicts["b"]
    assert (one.image, one.digest, one.suite, one.gpu) == ("acme/pytorch:b", "sha256:b", "sha256:suite", "auto")
    assert one.checks == tuple(suites.matches["b"])


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("jobs", [1, 2])
def test_no_more_images_than_asked_for_are_tested_side_by_side(suites: Suites, jobs: int) -> None:
    """Each stays long enough for one too many to begin."""

    def work(_: Process) -> int:
        wait_for(lambda: suites.most_at_once == jobs)
        time.sleep(0.05)
        return 0

    for name in "abc":
        suites.matches[name], suites.does[name] = [check()], work
    suites.run(target("a"), target("b"), target("c"), jobs=jobs)
    assert suites.most_at_once == jobs


def test_nothing_to_test_starts_nothing(suites: Suites, processes: Processes) -> None:
    assert suites.run() == {}
    assert processes.all == []


@pytest.mark.usefixtures("processes")
def test_results_of_an_earlier_run_are_nobodys_verdict(suites: Suites) -> None:
    (suites.folder / "a.json").write_text(dump_results([check()]))
    verdict = suites.run(target("a"))["a"]
    assert [(one.id, one.outcome) for one in verdict.checks] == [(SUITE_CHECK, FAILED)]
    assert "no results" in verdict.checks[0].reason


@pytest.mark.usefixtures("processes")
def test_a_killed_suite_fails_the_image_and_names_the_signal(suites: Suites) -> None:
    def die(process: Process) -> int:
        process.say("collected 3 items\nE  MemoryError: no room\n")
        process.send_signal(signal.SIGKILL)
        return 0

    suites.does = {"a": die}
    (failed,) = suites.run(target("a"))["a"].checks
    assert failed.outcome is FAILED
    assert "SIGKILL: MemoryError: no room" in failed.summary
    assert "collected 3 items" in failed.reason


@pytest.mark.parametrize("stubborn", [False, True])
def test_hanging_checks_are_stopped_then_killed_and_do_not_pass(
    suites: Suites, processes: Processes, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    def hang(process: Process) -> int:
        number = process.hear()
        return process.hear() if stubborn else 128 + number

    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    suites.does, suites.matches = {"a": hang}, {"a": [check()]}
    checks = suites.run(target("a"), timeout=0.05)["a"].checks
    assert "did not end within 0.05 s" in checks[-1].reason
    assert checks[-1].outcome is FAILED
    assert processes.all[0].messages == ([signal.SIGINT, signal.SIGKILL] if stubborn else [signal.SIGINT])


@pytest.mark.usefixtures("processes")
def test_only_a_failure_that_has_a_waiver_is_waived(suites: Suites) -> None:
    suites.matches = {"a": [check("users.root", FAILED, "uid 0"), check("files.setuid", FAILED, "su"), check("x")]}
    verdict = suites.run(target("a", waivers={"users.root": "it is an init image"}))["a"]
    assert [(one.id, one.outcome) for one in verdict.checks] == [
        ("users.root", Outcome.WAIVED), ("files.setuid", FAILED), ("x", PASSED),
    ]  # fmt: skip
    assert "it is an init image" in verdict.checks[0].reason


def test_a_suite_gets_our_options_and_none_of_the_users_pytest(
    suites: Suites, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    suites.matches = {"a": [check()]}
    suites.run(target("a"), nodes=3, nproc=4, gpu="require", only=("files.*", "x"), skip=("y",))
    (process,) = processes.all
    words = " ".join(process.command)
    assert "--nodes 3 --nproc 4 --only files.* --only x --skip y" in words
    assert "--gpu require" in words
    assert "--digest sha256:a --row a" in words
    assert "PYTEST_ADDOPTS" not in process.env
    assert process.env["HTTPS_PROXY"] == "http://proxy"


def test_nothing_that_a_suite_started_outlives_its_verdict(suites: Suites, processes: Processes) -> None:
    def crash(process: Process) -> int:
        process.orphans.add("torchrun")
        return -signal.SIGSEGV

    suites.does = {"a": crash}
    suites.run(target("a"))
    assert processes.all[0].orphans == set()


@pytest.mark.usefixtures("processes")
def test_at_most_ten_failures_are_shown_with_their_places(suites: Suites, capsys: Streams) -> None:
    suites.matches = {"a": [check(f"files.{number}", FAILED, "it is there\nand more") for number in range(12)]}
    suites.run(target("a"))
    output = capsys.readouterr().err
    assert [f"files.{number}: it is there\n" in output for number in (0, 9, 10)] == [True, True, False]
    assert "… and 2 more" in output
    assert "and more\n" not in output
    assert all(place in output.replace("\n", "") for place in ("a.md", "a.log"))


@pytest.mark.usefixtures("processes")
def test_how_far_the_checks_are_is_read_from_their_log(suites: Suites) -> None:
    progress: list[str] = []

    def work(process: Process) -> int:
        process.say("tests/images/test_files.py::test_no_setuid PASSED     [ 44%]\n")
        process.say("tests/images/test_files.py::TestOwner::test_setuid[x[1]] PASSED     [ 45%]\n")
        return wait_for(lambda: progress[1:])

    suites.does, suites.matches = {"a": work}, {"a": [check()]}
    Suite(Path(), CheckOptions(), cwd=suites.folder).judge(target("a"), suites.folder / "a.log", progress.append)
    assert progress == ["44 %, after: no setuid", "45 %, after: setuid x[1]"]


def test_an_interruption_keeps_verdicts_and_ends_other_suites(suites: Suites, processes: Processes) -> None:
    def work(process: Process) -> int:
        wait_for(lambda: "a" in suites.verdicts)
        interrupt()
        return 128 + process.hear()

    suites.matches = {"a": [check()]}
    suites.does = {"b": work}
    with pytest.raises(KeyboardInterrupt):
        suites.run(target("a"), target("b"), target("c"), jobs=1)
    assert set(suites.verdicts) == {"a"}
    assert [process.returncode for process in processes.all] == [0, 130]
    assert processes.all[1].messages == [signal.SIGINT]


def test_a_suite_that_was_stopped_starts_no_more(suites: Suites, processes: Processes) -> None:
    suite = Suite(Path(), CheckOptions(), cwd=suites.folder)
    suite.stop()
    with pytest.raises(KeyboardInterrupt):
        suite.judge(target("a"), suites.folder / "a.log", lambda _: None)
    assert processes.all == []


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("text", ["{", json.dumps([{"id": "x"}]), "[1]"])
def test_results_that_cannot_be_read_fail_the_image(suites: Suites, text: str) -> None:
    def write(process: Process) -> int:
        Path(process.option("--results")).write_text(text)
        return 0

    suites.does = {"a": write}
    verdict = suites.run(target("a"))["a"]
    assert verdict.outcome is FAILED
    assert "cannot be read" in verdict.checks[0].reason


def test_two_images_never_share_a_log_or_results(suites: Suites, processes: Processes) -> None:
    refs: Mapping[str, str] = {"acme/a:1": "a", "acme/b:1": "b"}
    suites.matches = {"a": [check("of.a")], "b": [check("of.b")]}
    verdicts = suites.run(*(target(name, ref=f"x:{short}", row=name) for name, short in refs.items()))
    assert [one.checks[0].id for one in verdicts.values()] == ["of.a", "of.b"]
    assert len({process.option("--results") for process in processes.all}) == 2
