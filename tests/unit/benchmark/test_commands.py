"""Command lines: what a person could type, the same for every image."""

import csv
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.benchmark.cases import experiment
from torchbake.benchmark.commands import Container, host_words
from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.field_types import Docker, PlanHost
from torchbake.core.paths import OWN_BENCH
from torchbake.engine.gpu import GpuAccess

NONE = GpuAccess(how="none", reason="no")
RUNTIME, CDI = GpuAccess(how="runtime", reason="yes"), GpuAccess(how="cdi", reason="yes")


def container(gpu: GpuAccess = NONE, family: str = "cpu", toolbox: Path | None = None) -> Container:
    return Container(image="acme/pytorch:cpu", family=family, gpu=gpu, folder=Path("/plans"), toolbox=toolbox)


def line(value: Container, what: Experiment, **labels: str) -> str:
    return shlex.join(value.words(what, labels))


def test_an_image_gets_memory_to_share_and_its_limits() -> None:
    assert line(container(), experiment()) == (
        "docker run --rm --network=none --shm-size=1g --ulimit=memlock=-1 --ulimit=stack=67108864 "
        "acme/pytorch:cpu bench --model resnet50 --forward_only false --batch_size 16 --num_batches 100 "
        "--num_warmup_batches 1 --device cpu "
        "--dtype float32"
    )


def test_what_the_plan_adds_is_there() -> None:
    docker = Docker(shm_size="8g", network="host", options=("--cpuset-cpus=0",))
    what = experiment(docker=docker, env={"A": "b c"}, args=("--cudnn_fastest", "true"), phase="inference")
    command = line(container(), what, run="x")
    assert "--label=run=x --network=host --shm-size=8g" in command
    assert "'--env=A=b c' --cpuset-cpus=0 acme/pytorch:cpu bench" in command
    assert "--forward_only true" in command
    assert command.endswith("--cudnn_fastest true")


def test_the_loader_alone_is_a_phase() -> None:
    command = line(container(), experiment(phase="data_ingestion", data_dir="data", monitor_seconds=0.5))
    assert "--forward_only false --data_loader_only true" in command
    assert "--monitor_seconds 0.5" in command
    assert "data_loader_only" not in line(container(), experiment(data_dir="data"))


def test_a_model_and_data_of_ones_own_are_mounted() -> None:
    command = line(container(), experiment("models/mine.py:Net", data_dir="data", num_loader_threads=2))
    assert "--mount=type=bind,source=/plans,target=/plan,readonly --mount=type=bind,source=/plans/data," in command
    assert "--model /plan/models/mine.py:Net" in command
    assert "--data_dir /data --data_backend caffe_lmdb --data_shuffle false --num_loader_threads 2" in command


def test_a_folder_may_have_any_name() -> None:
    words = container().words(experiment(data_dir='a:b, "c"'))
    (mount,) = (word.removeprefix("--mount=") for word in words if word.startswith("--mount="))
    assert next(csv.reader([mount])) == ["type=bind", 'source=/plans/a:b, "c"', "target=/data", "readonly"]


def test_an_image_without_bench_is_given_ours() -> None:
    command = line(container(toolbox=Path("/toolbox")), experiment())
    assert (
        "--mount=type=bind,source=/toolbox,target=/opt/torchbake,readonly acme/pytorch:cpu /opt/torchbake/bench --model"
        in command
    )


@pytest.mark.parametrize(
    ("gpu", "words"),
    [(RUNTIME, """--gpus '"device=0,1"'"""), (CDI, "--device=nvidia.com/gpu=0 --device=nvidia.com/gpu=1")],
)
def test_gpus_are_asked_for_as_the_engine_wants_it(gpu: GpuAccess, words: str) -> None:
    command = line(container(gpu, "cuda"), experiment(gpus=2))
    assert words in command
    assert "--device gpu --num_gpus 2 --dtype float32 --cudnn_benchmark true" in command


def test_a_cuda_image_on_the_cpu_gets_no_gpu() -> None:
    assert "--env=NVIDIA_VISIBLE_DEVICES=void" in line(container(RUNTIME, "cuda"), experiment())
    assert "NVIDIA" not in line(container(), experiment())
    command = line(container(RUNTIME, "cuda"), experiment(gpus=2, device="cpu"))
    assert "--device cpu --num_gpus 2" in command
    assert "--gpus" not in command


def test_a_refused_limit_is_left_out() -> None:
    words = replace(container(), without=frozenset({"memlock"})).words(experiment())
    assert [word for word in words if word.startswith("--ulimit")] == ["--ulimit=stack=67108864"]


def test_bench_over_ssh_ends_its_remaining_processes() -> None:
    words = host_words(PlanHost(ssh="foo_bar"), experiment(env={"A": "b c"}), limit=60, folder=Path("/plans"))
    assert words[:4] == ["ssh", "-o", "BatchMode=yes", "foo_bar"]
    assert words[4].startswith("env 'A=b c' timeout 60 bench --model resnet50 ")
    assert len(words) == 5


def test_a_hosts_own_python_runs_and_its_shell_expands_home() -> None:
    host = PlanHost(ssh="foo_bar", python="~/pytorch/sandbox/bin/python", bench="~/a b/bench")
    command = host_words(host, experiment("x; rm -rf /"), limit=60, folder=Path("/plans"))[4]
    assert command.startswith("timeout 60 ~/pytorch/sandbox/bin/python ~/'a b/bench' --model 'x; rm -rf /'")


def test_this_machine_takes_its_python_and_the_plans_files() -> None:
    words = host_words(
        PlanHost(python="/venv/bin/python"), experiment("mine.py:Net", data_dir="d"), limit=9, folder=Path("/p")
    )
    assert words[:4] == ["/venv/bin/python", str(OWN_BENCH), "--model", "/p/mine.py:Net"]
    assert words[words.index("--data_dir") + 1] == "/p/d"
    assert OWN_BENCH.exists()
