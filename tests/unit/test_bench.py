"""`bench` without torch: its command line, its loop and clocks, figures, lines, and why a measurement ended."""

import argparse
import gc
import json
import math
import re
import shlex
import time
from collections.abc import Iterator
from itertools import count, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.pytorch.payloads import exchange
from entrypoints.pytorch.throughput import cli, loop, report
from entrypoints.pytorch.throughput.combine import (
    RankReport,
    combine,
    expect_all_batches,
    percentile,
    slowest,
    summary,
    together,
)
from entrypoints.pytorch.throughput.failure import Failure, OutOfMemory, kill_message, lacks_memory, reason_of
from entrypoints.pytorch.throughput.flags import BenchSettings, make_parser, parse
from entrypoints.pytorch.throughput.loop import EventClock, HostClock, Laps
from entrypoints.pytorch.throughput.nvml import Watch
from entrypoints.pytorch.throughput.zoo import ModelError
from tests.unit.conftest import check_golden
from torchbake.core.paths import TOOLKIT

PAGE = TOOLKIT / "docs/how-to/benchmark.md"
START = "<!-- from the flags of `bench`; TORCHBAKE_UPDATE_GOLDEN=1 pytest tests/unit/test_bench.py writes it -->\n"
END = "\n\n"  # of the table
LEAST = ("--model", "resnet50", "--batch_size", "16")
ALL = (
    "--model=resnet50 --forward_only=true --batch_size=32 --num_batches=7 --num_warmup_batches=0 --num_gpus=2 "
    "--device=gpu --data_dir=/data --data_backend=image_folder --data_shuffle=true --num_loader_threads=3 "
    "--dtype=float16 --cudnn_benchmark=false --cudnn_fastest=true --data=synthetic/pinned --data_loader_only=true "
    "--dist_backend=gloo --local_rank=1 --monitor_seconds=0.5"
)


def settings(*words: str) -> BenchSettings:
    parsed = parse([*LEAST, *words])
    assert parsed is not None
    return parsed


def look(**values: Any) -> RankReport:
    laps = Laps(times=[0.2, 0.4], data_times=[0.0, 0.1])
    facts = {"name": "a GPU", "warm": laps, "laps": laps, "peak_rss": 5, "peak_gpu": None, "watch": Watch()}
    return RankReport(**{**facts, **values})


def test_defaults_are_those_of_the_field() -> None:
    assert settings() == BenchSettings(
        model="resnet50", batch_size=16, forward_only=False, num_batches=100, num_warmup_batches=1, num_gpus=1,
        device="cpu", dtype="float32", data_dir="", data_backend="caffe_lmdb", data_shuffle=False,
        num_loader_threads=4, data="synthetic", data_loader_only=False, dist_backend="", local_rank=None,
        monitor_seconds=0, cudnn_benchmark=True, cudnn_fastest=False, explicit=frozenset({"model", "batch_size"}),
    )  # fmt: skip


WITH_HYPHENS = re.sub(r"--\w+", lambda match: match[0].replace("_", "-"), ALL)


@pytest.mark.parametrize(
    "words", [ALL.split(), ALL.replace("=", " ").split(), WITH_HYPHENS.split()], ids=["=", "blank", "hyphens"]
)
def test_every_flag_is_taken_as_the_field_writes_it(words: list[str]) -> None:
    parsed = parse(words)
    assert parsed is not None
    assert vars(parsed) | {"explicit": 0} == {
        "model": "resnet50", "batch_size": 32, "forward_only": True, "num_batches": 7, "num_warmup_batches": 0,
        "num_gpus": 2, "device": "gpu", "dtype": "float16", "data_dir": "/data", "data_backend": "image_folder",
        "data_shuffle": True, "num_loader_threads": 3, "cudnn_benchmark": False, "cudnn_fastest": True, "explicit": 0,
        "data": "synthetic/pinned", "data_loader_only": True, "dist_backend": "gloo", "local_rank": 1,
        "monitor_seconds": 0.5,
    }  # fmt: skip
    assert len(parsed.explicit) == 19


@pytest.mark.parametrize(
    ("word", "truth"), [("true", True), ("False", False), ("on", True), ("off", False), ("1", True), ("0", False)]
)
def test_booleans(word: str, truth: bool) -> None:
    assert settings("--forward_only", word).forward_only is truth
    assert settings("--forward_only", "--num_batches", "3").forward_only


def test_float_is_float32() -> None:
    assert settings("--dtype", "float").dtype == "float32"


def test_a_wrong_command_line_is_told_and_ends_with_64(capsys: pytest.CaptureFixture[str]) -> None:
    for words, sentence in (
        ([], "--model is missing"),
        (["--model", "resnet50"], "--batch_size is missing"),
        ([*LEAST, "--batch_size", "0"], "'0' is not a whole number from 1 up"),
        ([*LEAST, "--num_batches", "1.5"], "'1.5' is not a whole number from 1 up"),
        ([*LEAST, "--forward_only", "perhaps"], "'perhaps' is neither true nor false"),
        ([*LEAST, "--dtype", "float64"], "invalid choice: 'float64'"),
        ([*LEAST, "--data_loader_only"], "--data_loader_only measures the loader, and synthetic samples need none"),
        ([*LEAST, "--data", "real"], "invalid choice: 'real'"),
        ([*LEAST, "--dist_backend", "mpi"], "invalid choice: 'mpi'"),
        ([*LEAST, "--monitor_seconds", "0.1"], "'0.1' is neither 0 nor seconds from 0.2 up"),
        ([*LEAST, "--monitor_seconds", "nan"], "'nan' is neither 0 nor seconds from 0.2 up"),
        ([*LEAST, "--num_batch", "3"], "unrecognized arguments: --num_batch 3"),
        ([*LEAST, "--device", "gpu", "--num_gpus", "0"], "--num_gpus is 0, and --device gpu needs at least 1"),
    ):
        with pytest.raises(SystemExit) as end:
            parse(words)
        lines = capsys.readouterr()
        assert (end.value.code, lines.out) == (64, ""), (words, sentence)
        assert lines.err.startswith("bench: "), (words, sentence)
        assert sentence in lines.err, (words, sentence)


def test_the_page_has_every_flag() -> None:
    """The table is made from the parser."""
    before, start, rest = PAGE.read_text().partition(START)
    assert start, f"{PAGE} has lost the line that its table follows"
    check_golden(PAGE, f"{before}{start}{_table()}{rest[rest.index(END) :]}")


def _table() -> str:
    rows = ["| flag | meaning |", "| --- | --- |"]
    for action in make_parser()._actions:
        if action.option_strings and not isinstance(action, argparse._HelpAction):
            values = "\\|".join(action.choices) if action.choices else str(action.metavar or "").replace("|", "\\|")
            rows.append(f"| `{action.option_strings[0]}`{f' {values}' if values else ''} | {action.help} |")
    return "\n".join(rows)


def test_the_page_has_every_line_and_every_key() -> None:
    page, result = PAGE.read_text(), report.blank(settings()) | combine(settings(), [look()])
    *lines, _ = report.lines(result | {"status": "success"})
    assert [line for line in lines if f"`{line.partition(' ')[0]}`" not in page] == []
    keys = [*result, *(key for name in ("data", "memory", "time") for key in result[name])]
    assert [key for key in keys if f"`{key}`" not in page and key != "bench"] == []


DISPLAY = [
    line.strip()
    for page in sorted((TOOLKIT / "docs").rglob("*.md"))
    for line in page.read_text().splitlines()
    if line.startswith("    ") and "bench --model" in line
]


def test_command_lines_of_pages_are_valid_in_a_container() -> None:
    for line in DISPLAY:
        before, _, words = line.partition("bench --model")
        text = parse(["--model", *shlex.split(words)])
        assert text is not None, line
        if before.startswith("docker run "):
            many_nodes, options = "NNODES=" in before, before.split()
            assert "--rm" in options, line
            assert ("--gpus" in options) == (text.device == "gpu"), line
            assert ("--network" in options) == many_nodes, line
            assert ("--shm-size" in options) == (text.num_gpus > 1 or many_nodes), line


def test_a_flag_without_effect_is_said() -> None:
    def notes(*words: str) -> str:
        return " ".join(report.notes_on(settings(*words)))

    assert notes() == ""
    assert "--cudnn_fastest true has no effect: torch has no such mode" in notes("--cudnn_fastest", "true")
    assert notes("--cudnn_fastest", "false") == ""
    assert "--cudnn_benchmark has no effect on the CPU" in notes("--cudnn_benchmark", "true")
    assert notes("--cudnn_benchmark", "true", "--device", "gpu") == ""
    for words in (("--data_shuffle",), ("--num_loader_threads", "4"), ("--data_backend", "image_folder")):
        assert f"{words[0]} has no effect without --data_dir" in notes(*words)
        assert notes(*words, "--data_dir", "/data") == ""
    assert "--num_gpus 2 is the number of processes" in notes("--num_gpus", "2")
    gpu = ("--device", "gpu")
    assert "--data synthetic is synthetic/device here" in notes("--data", "synthetic", *gpu)
    assert notes("--data", "synthetic") == notes("--data", "synthetic/pinned", *gpu) == ""
    assert "--data synthetic/pinned has no effect on the CPU" in notes("--data", "synthetic/pinned")
    assert "--data has no effect with --data_dir" in notes("--data", "synthetic", "--data_dir", "/data", *gpu)
    assert "--local_rank has no effect on the CPU" in notes("--local_rank", "0")
    assert notes("--local_rank", "0", *gpu) == notes("--data_loader_only", "false") == ""


def test_a_backend_without_effect_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def notes(*words: str) -> str:
        return " ".join(report.notes_on(settings("--dist_backend", *words)))

    assert "there is one rank" in notes("nccl")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "the ranks on the CPU use gloo" in notes("nccl")
    assert notes("gloo") == notes("nccl", "--device", "gpu") == notes("gloo", "--device", "gpu") == ""


def test_the_loader_alone_is_a_phase_that_nothing_binds() -> None:
    alone = settings("--data_loader_only", "--data_dir", "/data", "--num_batches", "50")
    assert (alone.phase, alone.backend) == ("data_ingestion", "caffe_lmdb")
    waiting = Laps(times=[0.2, 0.2], data_times=[0.2, 0.2])
    assert combine(alone, [look(laps=waiting)])["data"]["bound"] is False
    assert combine(settings("--data_dir", "/data"), [look(laps=waiting)])["data"]["bound"] is True


@pytest.mark.parametrize(
    ("env", "words", "output"),
    [
        ({"LOCAL_RANK": "1", "RANK": "1"}, ("--local_rank", "0"), "the launcher says LOCAL_RANK=1"),
        ({}, ("--local-rank", "1", "--num_gpus", "2"), "--num_gpus 2 starts several"),
    ],
)
def test_a_rank_that_is_another_is_refused(
    env: dict[str, str], words: tuple[str, ...], output: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert cli.main([*LEAST, *words], Path("bench")) == 64
    assert output in capsys.readouterr().err


def test_nodes_measure_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def become(_python: object, words: list[str], env: dict[str, str]) -> None:
        raise InterruptedError([*words[3:], env["NPROC_PER_NODE"]])

    monkeypatch.setattr("os.execve", become)
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NNODES", "2")
    with pytest.raises(InterruptedError) as became:
        cli.main(LEAST, Path("/opt/bench"))
    assert became.value.args[0] == ["/opt/run", "/opt/bench", *LEAST, "1"]


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


def test_a_batch_that_does_not_fit_is_told_from_other_failures() -> None:
    for error, lacking in (
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"), True),
        (MemoryError(), True),
        (OutOfMemory("Rank 1 on b: The memory is too small"), True),
        (Failure("There is no folder x (out of memory)"), False),
        (RuntimeError("DataLoader worker (pid 3) is killed by signal: Killed. Cannot allocate memory"), False),
        (ValueError("x"), False),
    ):
        assert lacks_memory(error) is lacking, (error, lacking)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_figures_lie_between_the_least_and_the_most(times: list[float]) -> None:
    figures = summary(times)
    assert figures["min"] <= figures["p5"] <= figures["median"] <= figures["p95"] <= figures["p99"] <= figures["max"]
    assert figures["std"] <= figures["max"] - figures["min"] + 1e-6


def test_figures() -> None:
    assert summary([0.4, 0.1, 0.2, 0.3]) == pytest.approx(
        {
            "mean": 0.25,
            "median": 0.25,
            "std": 0.1118034,
            "min": 0.1,
            "max": 0.4,
            "p5": 0.115,
            "p95": 0.385,
            "p99": 0.397,
        }
    )
    assert percentile([1.0], 99) == 1.0
    assert slowest([[1.0, 5.0], [2.0, 3.0]]) == [2.0, 5.0]


def test_ranks_slow_in_turn_take_the_time_of_the_last_one() -> None:
    assert together([[1.0, 5.0], [2.0, 3.0]]) == [2.0, 4.0]
    assert together([[1.0, 2.0, 1.0], [2.0, 1.0, 1.0]]) == [2.0, 1.0, 1.0]
    assert together([[0.5, 0.25]]) == [0.5, 0.25]
    assert together([[], []]) == []


RANKS = st.integers(1, 6).flatmap(lambda size: st.lists(st.lists(st.floats(0.01, 10), min_size=size, max_size=size)))


@given(RANKS.filter(bool))
def test_batches_of_all_ranks_take_the_slowest_ranks_time(ranks: list[list[float]]) -> None:
    times = together(ranks)
    assert sum(times) == pytest.approx(max(map(sum, ranks)))
    assert min(times) >= 0


class FakeClock:
    """Says that the first gap took 1 second, the next 2, and so on."""

    def __init__(self) -> None:
        self.marks = 0

    def mark(self) -> None:
        self.marks += 1

    def gaps(self) -> list[float]:
        return [float(gap) for gap in range(1, self.marks)]


def test_a_batch_takes_what_it_waits_and_what_it_computes() -> None:
    finished: list[Any] = []
    laps = loop.run(FakeClock(), ((number, None) for number in count()), finished.append, 3)
    assert finished == [(0, None), (1, None), (2, None)]
    assert laps == Laps(times=[1.0 + 2.0, 3.0 + 4.0, 5.0 + 6.0], data_times=[1.0, 3.0, 5.0])


def test_time_consuming_work_precedes_the_ranks_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: order.append("collect"))
    clock = FakeClock()
    monkeypatch.setattr(clock, "mark", lambda: order.append("mark"))
    monkeypatch.setattr(clock, "gaps", list)
    loop.run(clock, repeat((None, None)), lambda batch: None, 1, wait=lambda: order.append("wait"))
    assert order == ["collect", "wait", "mark", "mark", "mark"]


def test_the_loop_costs_less_than_a_hundredth_of_a_10_ms_batch() -> None:
    laps = loop.run(HostClock(), repeat((None, None)), lambda batch: None, 20_000)
    assert summary(laps.times)["median"] < 0.01 * 0.010


def test_the_clock_of_the_host_counts_seconds() -> None:
    (lap,) = loop.run(HostClock(), repeat((None, None)), lambda batch: time.sleep(0.02), 1).times
    assert 0.02 <= lap < 2


class FakeEvent:
    """A CUDA event of a GPU on which 250 ms lie between one event and the next."""

    made: Iterator[int] = count()
    waited: list["FakeEvent"] = []  # noqa: RUF012 - of all of them

    def record(self) -> None:
        self.at = next(self.made) * 250.0

    def synchronize(self) -> None:
        self.waited.append(self)

    def elapsed_time(self, other: "FakeEvent") -> float:
        assert self.waited, "nothing has waited for the GPU"
        return other.at - self.at


def test_the_clock_of_a_gpu_waits_for_it_once_and_counts_seconds() -> None:
    laps = loop.run(EventClock(FakeEvent), repeat((None, None)), lambda batch: None, 3)
    assert laps == Laps(times=[0.5] * 3, data_times=[0.25] * 3)
    assert len(FakeEvent.waited) == 1


def test_all_ranks_together() -> None:
    slow = Laps(times=[0.3, 0.3], data_times=[0.05, 0.0])
    few = settings("--data_dir", "/d", "--num_batches", "2")
    result = combine(few, [look(), look(laps=slow, peak_rss=7, peak_gpu=9)])
    assert (result["times"], result["data_times"]) == (pytest.approx([0.3, 0.3]), [0.05, 0.1])
    assert (result["world"], result["effective_batch"]) == (2, 32)
    assert result["throughput"] == pytest.approx(32 / 0.3)
    assert result["memory"] == {"peak_rss_bytes": 7, "peak_gpu_bytes": 9}
    assert (result["power"], result["clocks"]) == (None, None)
    assert result["data"]["bound"]
    assert "Loading bound this run: batches waited 25% of their time" in result["notes"][0]
    assert "The first 8 batches may have been loaded ahead" in result["notes"][1]
    assert not combine(settings(), [look()])["data"]["bound"]
    assert combine(settings(), [look(on_cpu=("it is slow.",))] * 2)["notes"] == ["it is slow."]


def test_lines_are_the_fields_and_the_object_is_the_last() -> None:
    result = report.blank(settings()) | combine(settings(), [look()])
    *lines, last = report.lines(result | {"status": "success", "model_title": "ResNet50"})
    assert '__exp.model_title__= "ResNet50"' in lines
    values = {name: json.loads(text) for name, text in (line[2:].split("__= ", 1) for line in lines)}
    assert values["results.time"] == pytest.approx(300)
    assert values["results.time_std"] == pytest.approx(100)
    assert values["results.time_data"] == [200, 400]
    assert values["results.throughput"] == pytest.approx(16 / 0.3)
    assert values["results.status"] == "success"
    assert last.startswith('{"bench": 1, "status": "success", ')
    assert json.loads(last)["times"] == [0.2, 0.4]


def test_a_failure_has_the_same_keys_and_no_times() -> None:
    failed = report.blank(settings()) | {"reason": "There is no GPU."}
    lines = list(report.lines(failed))
    assert '__results.status__= "failure"' in lines
    assert not [line for line in lines if line.startswith("__results.time")]
    assert json.loads(lines[-1])["reason"] == "There is no GPU."
    assert report.blank(settings()).keys() >= combine(settings(), [look()]).keys()


NCCL_SHARED = (
    "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888), error: No space left on device"
)


def test_an_error_is_told_in_a_sentence() -> None:
    for error, sentence in (
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory of the GPU is too small for a batch"),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might"), "memory of the GPU is too small"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `x`"), "memory of the GPU is too small"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "memory of the GPU is too small"),
        (RuntimeError("NCCL error\nLast error:\nCuda failure 2 'out of memory'"), "of the GPU is"),
        (RuntimeError(f"NCCL error\nLast error:\n{NCCL_SHARED}"), "NCCL has too little shared memory in /dev/shm"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), ""),
        (MemoryError(), "memory is too small for a batch of 16 in float32"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "too small for a batch of 16"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. It is"), "docker run --shm-size"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), "--num_loader_threads"),
        (RuntimeError("\"conv\" not implemented for 'Half'"), "cannot compute this model in float32"),
        (Failure("a folder is missing"), "A folder is missing"),
        (ModelError("There is no model"), "There is no model"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "has no torch: install it there, or start"),
        (ModuleNotFoundError("No module named 'sympy'", name="sympy"), ""),
        (Failure("Caught Failure in worker.\nTraceback\n  x\nx.Failure: One image: no."), "One image: no."),
        (ValueError("what is this"), ""),
    ):
        reason = reason_of(error, batch_size=16, dtype="float32", device="cpu")
        assert sentence in reason, (error, sentence)
        assert bool(reason) == bool(sentence), (error, sentence)


def test_a_process_that_was_killed() -> None:
    assert "for lack of memory: lower" in kill_message("the process ended by SIGKILL", out_of_memory=True)
    assert "most likely" in kill_message("the process ended by SIGKILL", out_of_memory=False)
    assert "SIGSEGV" in kill_message("the process ended by SIGSEGV", out_of_memory=True)


def test_what_a_rank_has_seen_arrives_as_it_was() -> None:
    watch = Watch(watts=[0.1], reasons={"b", "a"}, clocks=[1, 2], missing={"power": "none"})
    for status in (look(), look(watch=watch, peak_gpu=7, on_cpu=("a", "b"))):
        assert exchange.decode(exchange.encode(status), RankReport) == status
    values = json.loads(exchange.encode(look()))
    changes: tuple[dict[str, object], ...] = (
        {"peak_gpu": "7"},
        {"watch": None},
        {"laps": {"times": []}},
        {"on_cpu": [1]},
        {"more": 1},
    )
    for change in changes:
        with pytest.raises(ValueError, match=r"^no "):
            exchange.decode(json.dumps({**values, **change}).encode(), RankReport)


@pytest.mark.parametrize(
    ("times", "waits"), [([0.2], [0.0]), ([0.2, 0.4], [0.0]), ([0.2, math.nan], [0, 0]), ([0.2, -1.0], [0, 0])]
)
def test_a_rank_sends_a_time_for_each_batch(times: list[float], waits: list[float]) -> None:
    two = settings("--num_batches", "2", "--num_warmup_batches", "2")
    expect_all_batches(two, [look()])
    with pytest.raises(Failure, match="Rank 1 did not send the times of 2 batches"):
        expect_all_batches(two, [look(), look(laps=Laps(times=times, data_times=waits))])
