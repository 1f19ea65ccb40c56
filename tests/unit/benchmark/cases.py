"""Plans, places and results of benchmarks, as tests need them."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torchbake.benchmark.expand import Experiment, PlaceName
from torchbake.benchmark.model import ExperimentSettings, Plan, validate_plan
from torchbake.benchmark.outcome import BenchResult, RunOutcome, read_outcome
from torchbake.benchmark.records import Where
from torchbake.core.problem import Problem
from torchbake.core.processes import ProcessResult
from torchbake.matrix.yaml_source import Document, parse_document

NO_MEMORY = "The memory is too small."
PLAN = "models: [resnet50, vgg19]\nbatch_sizes: [16, 64]\nphases: [training, inference]\nimages: [cpu]\n"


def document_of(text: str = PLAN) -> Document:
    return parse_document(text, Path("plan.yaml"))


def plan_of(text: str = PLAN) -> Plan:
    return validate_plan(document_of(text))


def experiment(model: str = "resnet50", **changes: Any) -> Experiment:
    arguments: dict[str, Any] = {"batch_size": 16, "dtype": "float32", "phase": "training", "gpus": 0, "nodes": 1}
    arguments |= {name: changes.pop(name) for name in arguments if name in changes}
    return Experiment(model=model, settings=ExperimentSettings(**changes), **arguments)


def result_line(seconds: float = 0.1, **changes: Any) -> dict[str, Any]:
    """Return the last line of `bench` with all keys of its contract."""
    time = dict.fromkeys(("mean", "median", "min", "max", "p5", "p95", "p99"), seconds) | {"std": 0.0}
    return {
        "bench": 1, "status": "success", "reason": "", "model": "resnet50", "model_title": "ResNet50",
        "parameters": 25557032, "input": [3, 224, 224], "classes": 1000, "phase": "training", "batch_size": 16,
        "effective_batch": 16, "dtype": "float32", "device": "cpu", "devices": ["a CPU"], "world": 1, "nodes": 1,
        "num_batches": 3, "num_warmup_batches": 1,
        "data": {"backend": "synthetic", "loader_threads": 4, "shuffle": False, "bound": False},
        "times": [seconds] * 3, "data_times": [0.0] * 3, "warmup_times": [seconds], "time": time,
        "throughput": 16 / seconds, "memory": {"peak_rss_bytes": 10**9, "peak_gpu_bytes": None}, "power": None,
        "clocks": None, "notes": [], "versions": {"torch": "2.13.0+cpu", "cuda": None, "python": "3.11.2"},
        "image": "", "host": {"name": "c0ffee", "cpu": "a CPU", "cores": 2, "threads": 2},
    } | changes  # fmt: skip


def printed(seconds: float = 0.1, **changes: Any) -> str:
    """Return the whole output of `bench`."""
    return f"__results.time__= {1000 * seconds}\n{json.dumps(result_line(seconds, **changes))}\n"


def finished(stdout: str = "", *, code: int = 0, stderr: str = "", late: bool = False) -> ProcessResult:
    return ProcessResult(code=code, seconds=2.0, at=0.0, stdout=stdout, stderr=stderr, late=late)


def result(seconds: float = 0.1, **changes: Any) -> BenchResult:
    actual = read_outcome(finished(printed(seconds, **changes))).result
    assert actual
    return actual


class Fake:
    """A place that takes its times from a function, call by call; a text is the reason for a failure."""

    def __init__(self, name: str, times: Callable[[], float | str] | None = None, *, host: str = "here") -> None:
        self.place_name = PlaceName(kind="image", word=name, name=name)
        self.where = Where(kind="image", name=name, digest=f"sha256:{name}", host=host)
        self.times, self.runs = times or itertools.repeat(0.1).__next__, list[Experiment]()

    def problem(self, experiment: Experiment) -> Problem | None:
        return None

    def command(self, experiment: Experiment) -> str:
        return f"bench --model {experiment.model}"

    def measure(self, experiment: Experiment, limit: int) -> RunOutcome:
        self.runs.append(experiment)
        time = self.times()
        if isinstance(time, str):
            return RunOutcome(reason=time, out_of_memory=time == NO_MEMORY)
        return RunOutcome(result=result(time))


def each(*values: float | str) -> Callable[[], float | str]:
    matches: Iterator[float | str] = iter(values)
    return lambda: next(matches)
