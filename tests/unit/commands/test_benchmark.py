"""`benchmark`: a plan and a comparison from the command line, on an engine and a `bench` in memory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.benchmark.cases import printed
from tests.unit.conftest import SMALL
from tests.unit.engines import Daemon
from tests.unit.processes import Process, Processes
from torchbake import cli
from torchbake.commands import _benchmark_places
from torchbake.core import processes as processes_module
from torchbake.engine.runner import RUN
from torchbake.errors import EngineError

Streams = pytest.CaptureFixture[str]
FIRST, SECOND = "acme/pytorch:2.13.0-cpu-runtime-debian12", "acme/other:latest"
PLAN = f"models: [resnet50, vgg19]\nimages: [cpu runtime, '{SECOND}']\nnum_batches: 3\n"


class Engine:
    """An engine without containers: a batch takes ``seconds`` by the image's digest; a text there is a failure."""

    def __init__(self) -> None:
        self.seconds: dict[str, float | str] = {"sha256:first": 0.1, "sha256:second": 0.1}
        self.processes, self.has_bench, self.refused = Processes(self.run), True, set[str]()
        self.stop: Callable[[], None] = lambda: None

    @property
    def measured(self) -> list[list[str]]:
        return [process.command for process in self.processes.all if "--model" in process.command]

    def run(self, process: Process) -> int:
        words = process.command
        for name, number in (("memlock", 8), ("stack", 3)):
            if name in self.refused and any(word.startswith(f"--ulimit={name}") for word in words):
                return self.end(process, 125, f"docker: rlimit type {number}: operation not permitted: unknown")
        if "test" in words:
            return 0 if self.has_bench else 1
        self.stop()
        actual = next(value for digest, value in self.seconds.items() if digest in words)
        if isinstance(actual, str):
            process.say(printed(status="failure", reason=actual))
            return 1
        process.say(printed(actual))
        return 0

    def end(self, process: Process, code: int, text: str) -> int:
        process.options["stderr"].write(text.encode())
        process.options["stderr"].flush()
        return code


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A folder with a matrix and a plan, and an engine with its CPU image and another one."""
    (tmp_path / "matrix.yaml").write_text(SMALL)
    (tmp_path / "plan.yaml").write_text(PLAN)
    monkeypatch.chdir(tmp_path)
    daemon, value = Daemon(), Engine()
    daemon.hold("sha256:first", FIRST)
    daemon.hold("sha256:second", SECOND)
    monkeypatch.setattr(_benchmark_places, "connect", lambda: daemon.engine)
    value.processes.stand_for(monkeypatch, processes_module)
    monkeypatch.setattr(processes_module, "_LOOK", 0.001)
    return value


def report(capsys: Streams, *words: str, code: int = 0) -> tuple[Any, str]:
    capsys.readouterr()
    assert cli.main(["benchmark", *words]) == code, capsys.readouterr().err
    streams = capsys.readouterr()
    return (json.loads(streams.out) if "json" in words and streams.out else streams.out), streams.err


def test_a_plan_is_measured_kept_and_told(engine: Engine, capsys: Streams) -> None:
    value, err = report(capsys, "plan.yaml", "--format", "json", "--report")
    assert [(each["model"], each["place"], each["state"]) for each in value["experiments"]] == [
        (model, place, "measured")
        for model in ("resnet50", "vgg19")
        for place in ("2.13.0-cpu-runtime-debian12", SECOND)
    ]
    assert Path("reports/benchmark/plan.html").exists()
    assert len(Path("reports/benchmark/results.csv").read_text().splitlines()) == 5
    assert "160.0 samples/s, 100 ms a batch [4/4]" in err
    assert all(any(word.startswith(f"--label={RUN}=") for word in words) for words in engine.measured)


def test_a_second_run_measures_nothing_and_force_measures_all(engine: Engine, capsys: Streams) -> None:
    report(capsys, "plan.yaml")
    value, _ = report(capsys, "plan.yaml", "--format", "json")
    assert {each["state"] for each in value["experiments"]} == {"kept"}
    assert len(engine.measured) == 4
    report(capsys, "plan.yaml", "--force")
    assert len(engine.measured) == 8


def test_a_failure_costs_itself_alone_and_is_the_exit_code(engine: Engine, capsys: Streams) -> None:
    engine.seconds["sha256:second"] = "Out of memory."
    out, err = report(capsys, "plan.yaml", code=24)
    assert out.count("failed: Out of memory.") == 2
    assert "2 of 4 experiments have no result" in err


def test_a_missing_image_is_a_failure_with_the_next_step(engine: Engine, capsys: Streams) -> None:
    Path("plan.yaml").write_text("models: [resnet50]\nimages: ['acme/gone:latest', cpu runtime]\n")
    out, _ = report(capsys, "plan.yaml", code=24)
    assert "failed: acme/gone:latest is not in the engine. docker pull acme/gone:latest" in out
    assert out.count("measured") == 1


def test_a_dry_run_prints_shell_commands_and_starts_none(engine: Engine, capsys: Streams) -> None:
    out, _ = report(capsys, "plan.yaml", "--dry-run")
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    assert len(lines) == 4
    assert lines[0].startswith(
        "docker run --rm --network=none --shm-size=1g --ulimit=memlock=-1 --ulimit=stack=67108864"
    )
    assert FIRST in lines[0]
    assert SECOND in lines[1]
    assert engine.processes.all == []


def test_a_limit_the_engine_cannot_set_is_left_out_and_reported(engine: Engine, capsys: Streams) -> None:
    engine.refused = {"memlock"}
    _, err = report(capsys, "plan.yaml")
    assert "may not raise the limit memlock" in err
    assert not any("--ulimit=memlock=-1" in words for words in engine.measured)
    assert all("--ulimit=stack=67108864" in words for words in engine.measured)


def test_a_limit_that_the_plan_names_is_never_left_out(engine: Engine, capsys: Streams) -> None:
    engine.refused = {"memlock"}
    Path("plan.yaml").write_text(f"{PLAN}docker: {{memlock: -1}}\n")
    out, _ = report(capsys, "plan.yaml", code=24)
    assert out.count("does not start: rlimit type 8: operation not permitted: unknown") == 4


def test_experiments_that_need_a_gpu_are_not_run_without_one(engine: Engine, capsys: Streams) -> None:
    Path("plan.yaml").write_text(f"{PLAN}gpus: [0, 1]\n")
    out, _ = report(capsys, "plan.yaml")
    assert out.count("not-run: a CPU image has no use for a GPU") == 4
    report(capsys, "plan.yaml", "--gpu", "require", code=24)
    Path("plan.yaml").write_text(f"{PLAN}gpus: 1\n")
    assert "no experiment could be run" in report(capsys, "plan.yaml")[1]


def test_this_machines_python_is_a_place_that_needs_no_engine(
    engine: Engine, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_benchmark_places, "connect", lambda: pytest.fail("the engine was asked"))
    Path("plan.yaml").write_text("models: [resnet50]\nhosts: [{python: /venv/bin/python}]\nenv: {A: b}\n")
    engine.seconds = {"/venv/bin/python": 0.2}
    monkeypatch.setenv("NNODES", "3")
    value, _ = report(capsys, "plan.yaml", "--format", "json")
    (each,) = value["experiments"]
    assert (each["state"], each["where"]["kind"], each["where"]["name"]) == ("measured", "host", "/venv/bin/python")
    (process,) = engine.processes.all
    assert (process.env["A"], process.env["PATH"].partition(":")[0], "NNODES" in process.env) == (
        "b", "/venv/bin", False,
    )  # fmt: skip


@pytest.mark.parametrize(("seconds", "verdict", "code"), [(0.12, "slower", 25), (0.08, "faster", 0), (0.1, "same", 0)])
def test_two_images_are_told_apart(
    engine: Engine, capsys: Streams, seconds: float, verdict: str, code: int
) -> None:  # fmt: skip
    engine.seconds["sha256:second"] = seconds
    words = ("compare", "cpu runtime", SECOND, "--rounds", "2", "--model", "matmul", "--format", "json")
    value, err = report(capsys, *words, code=code)
    assert (value["verdict"], value["experiments"][0]["verdict"]) == (verdict, verdict)
    assert value["experiments"][0]["difference"]["median"] == pytest.approx(seconds / 0.1 - 1)
    assert (value["a"]["digest"], value["b"]["digest"]) == ("sha256:first", "sha256:second")
    assert ("The second image is slower" in err) == (verdict == "slower")
    assert all("/opt/torchbake/bench" in words and "matmul" in words for words in engine.measured)


def test_a_machine_that_wavers_is_an_exit_code_of_its_own(engine: Engine, capsys: Streams) -> None:
    times = iter([0.1, 0.3, 0.05, 0.2, 0.15, 0.07] * 20)

    def waver() -> None:
        engine.seconds = dict.fromkeys(engine.seconds, next(times))

    engine.stop = waver
    out, err = report(capsys, "compare", "cpu runtime", SECOND, "--rounds", "1", code=26)
    assert "too noisy" in out
    assert "This machine is too noisy to tell" in err


def test_a_run_that_fails_is_no_verdict(engine: Engine, capsys: Streams) -> None:
    engine.seconds["sha256:second"] = "Out of memory."
    out, err = report(capsys, "compare", "cpu runtime", SECOND, code=24)
    assert out == ""
    assert f"in {SECOND}: Out of memory." in err


def test_a_plan_says_what_is_compared(engine: Engine, capsys: Streams) -> None:
    Path("plan.yaml").write_text(f"{PLAN}exclude: [{{model: vgg19, reason: a good reason}}]\n")
    out, _ = report(capsys, "compare", "cpu runtime", SECOND, "--plan", "plan.yaml", "--dry-run")
    assert [line.split("--model ")[1].split()[0] for line in out.splitlines() if "--model" in line] == ["resnet50"] * 2
    assert "rounds of the first alone, A A A A: 6; then of both, A B B A: 6 to 18" in out


def test_a_wrong_command_line_says_what_is_right(engine: Engine, capsys: Streams) -> None:
    for words, code, output in (
        ((), 2, "Which plan?"),
        (("plan.yaml", "other.yaml"), 2, "takes one plan"),
        (("gone.yaml",), 23, "gone.yaml: no such file"),
        (("compare",), 2, "takes two images"),
        (("compare", "cpu runtime"), 2, "With which image?"),
        (("compare", "cpu runtime", "cpu"), 4, "means"),
        (("compare", "cpu runtime", "acme/gone:latest"), 24, "acme/gone:latest is not in the engine"),
        (("compare", "cpu runtime", SECOND, "--report"), 2, "--report is an option of"),
        (("compare", "cpu runtime", SECOND, "--plan", "plan.yaml", "--model", "a"), 2, "--plan says what is measured"),
        (("plan.yaml", "--model", "a"), 2, "--model is an option of"),
        (("plan.yaml", "--num_gpus", "0"), 2, "--num_gpus is an option of"),
        (("plan.yaml", "--threshold", "3%"), 2, "--threshold is an option of"),
        (("plan.yaml", "--rounds", "6"), 2, "--rounds is an option of"),
        (("plan.yaml", "--seed", "0"), 2, "--seed is an option of"),
        (("compare", "cpu runtime", SECOND, "--registry", "ghcr.io/acme"), 2, "--registry does nothing here"),
        (("compare", "cpu runtime", SECOND, "--num_gpus", "-1"), 2, "--num_gpus should be at least 0 (got"),
        (("compare", "cpu runtime", SECOND, "--model", ""), 2, "--model "),
        (("compare", "cpu runtime", SECOND, "--threshold", "5"), 2, "is not between 0 and 1"),
    ):
        assert output in report(capsys, *words, code=code)[1], words
        assert engine.measured == [], words


def test_the_schema_is_printed(engine: Engine, capsys: Streams) -> None:
    assert json.loads(report(capsys, "schema")[0])["title"] == "Plan"


def test_a_model_that_was_edited_is_measured_again(engine: Engine, capsys: Streams) -> None:
    Path("mine.py").write_text("class Net: ...\n")
    Path("plan.yaml").write_text(f"models: ['mine.py:Net']\nimages: ['{SECOND}']\n")
    report(capsys, "plan.yaml")
    Path("mine.py").write_text("class Net: pass\n")
    for state in ("measured", "kept"):
        value, _ = report(capsys, "plan.yaml", "--format", "json")
        assert [each["state"] for each in value["experiments"]] == [state]


def test_a_plan_that_leaves_nothing_to_compare_says_so(engine: Engine, capsys: Streams) -> None:
    words = ("compare", "cpu runtime", SECOND, "--plan", "plan.yaml")
    for rule in (
        "{model: [resnet50, vgg19], reason: a good reason}",
        "{image: 2.13.0 cpu runtime, reason: a good reason}",
    ):
        Path("plan.yaml").write_text(f"{PLAN}exclude: [{rule}]\n")
        assert "The plan excludes all of its experiments in 2.13.0-cpu-run" in report(capsys, *words, code=24)[1]
    assert engine.measured == []


def test_what_neither_image_can_do_is_left_out_of_a_comparison(engine: Engine, capsys: Streams) -> None:
    Path("plan.yaml").write_text("models: [a]\ngpus: [0, 1]\nnum_batches: 3\n")
    words = ("compare", "cpu runtime", SECOND, "--plan", "plan.yaml", "--rounds", "1")
    value, err = report(capsys, *words, "--format", "json")
    assert [each["experiment"]["gpus"] for each in value["experiments"]] == [0]
    assert "left out: a training float32 batch 16 1 gpu in" in err
    assert "a CPU image has no use for a GPU" in report(capsys, *words, "--gpu", "require", code=24)[1]
    Path("plan.yaml").write_text("models: [a]\ngpus: 1\n")
    assert "No experiment can be run." in report(capsys, *words, code=24)[1]


def test_a_dry_comparison_with_a_release_needs_no_engine(
    engine: Engine, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise EngineError("No engine answers.")

    words = ("compare", "cpu runtime", "--registry", "example.com/acme", "--dry-run", "--rounds", "2")
    for answers in (True, False):
        if not answers:
            monkeypatch.setattr(_benchmark_places, "connect", none)
        out, _ = report(capsys, *words)
        first, second = (line for line in out.splitlines() if line.startswith("docker run"))
        assert " example.com/acme/pytorch:2.13.0-cpu-runtime-debian12 /opt/torchbake/bench --model" in first
        assert f" {FIRST} /opt/torchbake/bench --model" in second
        assert "A A A A: 2; then of both, A B B A: 2 to 6" in out
    assert engine.processes.all == []


def test_a_missing_folder_is_an_error_before_the_start(engine: Engine, capsys: Streams) -> None:
    Path("plan.yaml").write_text(f"{PLAN}data_dir: dataa\n")
    for words in (("plan.yaml",), ("compare", "cpu runtime", SECOND, "--plan", "plan.yaml")):
        assert "plan.yaml:4: data_dir: " in report(capsys, *words, code=23)[1]
    assert engine.processes.all == []


def test_options_of_compare_may_have_hyphens_or_underscores() -> None:
    parser = cli.make_parser("benchmark", "compare")
    for name, value in (("batch_size", 8), ("num_batches", 3), ("num_gpus", 2)):
        for flag in (f"--{name}", f"--{name.replace('_', '-')}"):
            assert getattr(parser.parse_args([flag, str(value)]), name) == value, flag
