"""`bench` in real containers of the CPU image: what it measures, its images, its ranks, and how it fails."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import docker
import pytest
from docker.models.containers import Container

from tests.e2e.conftest import CPU
from tests.e2e.owned import OURS
from torchbake.matrix.spec import TOOLBOX

pytestmark = pytest.mark.entrypoints

JOBS = Path(__file__).parent / "jobs"
NET, MEAN = "/jobs/net.py:Net", "/jobs/net.py:Mean"
PYTHON = "3.11"  # of the CPU image
FEW = ("--batch_size", "4", "--num_batches", "3")
FOLDER = ("--data_backend", "image_folder")


@dataclass(frozen=True)
class ReadOutput:
    """How `bench` ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """Its last line, and the only one of its kind."""
        *lines, last = self.out.splitlines()
        assert not [line for line in lines if line.startswith("{")]
        assert last.startswith('{"bench": 1, ')
        matches: dict[str, Any] = json.loads(last)
        return matches


Exec = Callable[..., ReadOutput]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pillow and lmdb for the image's Python, from wherever this host's indexes are."""
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(folder)]
    wheels = ["--python-version", PYTHON, "--only-binary", ":all:"]
    subprocess.run([*command, *wheels, "lmdb>=1.6,<4", "pillow>=11"], check=True)
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def container(engine: docker.DockerClient, built: dict[str, dict[str, Any]], packages: Path) -> Iterator[Container]:
    started = engine.containers.run(
        built[CPU]["ref"], ["sleep", "infinity"], detach=True, init=True, shm_size="256m", network_mode="none",
        labels=OURS,
        environment={"OMP_NUM_THREADS": "1", "PYTHONPATH": "/packages"},
        volumes={str(path): {"bind": at, "mode": "ro"} for path, at in ((JOBS, "/jobs"), (packages, "/packages"))},
    )  # fmt: skip
    yield started
    started.remove(force=True)


@pytest.fixture(scope="module")
def execute(container: Container) -> Exec:
    def run_in(*command: str, **env: str) -> ReadOutput:
        finished = container.exec_run(list(command), environment=env, demux=True)
        out, err = (part.decode() if part else "" for part in cast(tuple[bytes, bytes], finished.output))
        assert finished.exit_code is not None
        return ReadOutput(finished.exit_code, out, err)

    finished = run_in("python", "/jobs/make_images.py", "/tmp/data")
    assert finished.code == 0, finished.err
    return run_in


def test_a_model_is_measured(execute: Exec) -> None:
    answer = execute("bench", "--model", NET, "--batch_size=16", "--num_batches=12", "--num_warmup_batches=2")
    result = answer.result
    assert (answer.code, result["status"], result["reason"]) == (0, "success", ""), answer.err
    assert (result["model_title"], result["phase"], result["device"]) == ("A net of one's own", "training", "cpu")
    assert (len(result["times"]), len(result["data_times"]), len(result["warmup_times"])) == (12, 12, 2)
    assert result["time"]["min"] <= result["time"]["median"] <= result["time"]["max"]
    assert result["throughput"] == pytest.approx(16 / result["time"]["mean"])
    assert result["memory"]["peak_rss_bytes"] > 50e6
    assert (result["image"], result["versions"]["torch"]) == (CPU, "2.13.0+cpu")
    assert f"__results.time__= {result['time']['mean'] * 1000}" in answer.out
    assert result["host"]["threads"] == 1


def test_times_match_torchs_timer_and_samples_the_written_ones(execute: Exec) -> None:
    state = execute("python", "/jobs/bench_beside.py", "/tmp")
    assert state.code == 0, state.err
    medians = json.loads(state.out)
    assert 1 / 3 < medians["bench"] / medians["torch"] < 3  # other tests use the cores as well


@pytest.mark.parametrize(
    "words",
    [
        ("--data_dir", "/tmp/data/images", *FOLDER, "--data_shuffle", "--num_loader_threads", "2"),
        ("--data_dir", "/tmp/data/lmdb", "--forward_only", "--num_loader_threads", "0"),
    ],
    ids=["image_folder", "caffe_lmdb"],
)
def test_images_are_read_and_a_run_that_loading_binds_is_told(execute: Exec, words: tuple[str, ...]) -> None:
    answer = execute("bench", "--model", MEAN, "--batch_size", "10", "--num_batches", "12", *words)
    assert answer.code == 0, answer.err
    result = answer.result
    assert result["data"]["bound"]
    assert min(result["data_times"]) > 0
    assert any("Loading bound this run" in note for note in result["notes"])
    assert "bench: note: Loading bound this run" in answer.err


def test_the_loader_is_measured_alone(execute: Exec) -> None:
    words = ("--data_dir", "/tmp/data/images", *FOLDER, "--data_loader_only", "--num_loader_threads", "1")
    answer = execute("bench", "--model", "resnet18", *FEW, *words, "--monitor_seconds", "0.2")
    result = answer.result
    assert (answer.code, result["phase"], result["parameters"]) == (0, "data_ingestion", None), answer.err
    assert (len(result["times"]), result["data"]["bound"]) == (3, False)
    assert result["data_times"] == pytest.approx(result["times"], rel=0.1)
    assert max(result["monitor"]["memory_bytes"]) > 50e6


def test_the_newest_command_line_of_the_field_is_taken(execute: Exec) -> None:
    words = ("--data", "synthetic", "--data_loader_only", "false", "--dist_backend", "nccl", "--local_rank", "0")
    answer = execute("bench", "--model", NET, *FEW, *words)
    assert (answer.code, answer.result["phase"]) == (0, "training"), answer.err
    assert "--dist_backend has no effect: there is one rank." in answer.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(
            ("--model", "resnet51"),
            "There is no model 'resnet51'. Did you mean resnet50?",
            marks=pytest.mark.long,  # tests/unit/test_zoo.py has this sentence too
        ),
        (("--model", NET, "--device", "gpu"), "This torch, 2.13.0+cpu, is built without CUDA"),
        pytest.param(
            ("--model", NET, "--data_dir", "/tmp/data/empty", *FOLDER),
            "/tmp/data/empty has no images",
            marks=pytest.mark.long,
        ),
        (("--model", NET, "--data_dir", "/tmp/data/broken", *FOLDER), "broken/class_0/0.jpg cannot be read"),
        (("--model", NET, "--data_dir", "/tmp/data/lmdb-wrong"), "key 00000000_image is not a Datum of Caffe"),
        pytest.param(
            ("--model", NET, "--data_dir", "/tmp/data/lmdb-negative"),
            "are (3, -2, -2), and none can be negative",
            marks=pytest.mark.long,  # tests/unit/test_bench_data.py has this sentence too
        ),
        (("--model", NET, "--data_dir", "/tmp/data/lmdb-flat"), "has 0 values for (channels, height, width) (3, 0, 0)"),
    ],
)
def test_what_cannot_be_measured_is_told_in_a_sentence(execute: Exec, words: tuple[str, ...], sentence: str) -> None:
    answer = execute("bench", *words, *FEW)
    assert (answer.code, answer.result["status"]) == (1, "failure")
    assert sentence in answer.result["reason"]
    assert sentence in answer.err
    assert "Traceback" not in answer.err
    assert '__results.status__= "failure"' in answer.out


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (("--data_dir", "/tmp/data/images", *FOLDER), "Pillow"),
        pytest.param(("--data_dir", "/tmp/data/lmdb"), "lmdb", marks=pytest.mark.long),
    ],
)
def test_a_package_that_is_missing_is_named(execute: Exec, words: tuple[str, ...], package: str) -> None:
    answer = execute("bench", "--model", NET, *FEW, *words, PYTHONPATH="")
    assert answer.code == 1
    assert package in answer.result["reason"]
    assert "in matrix.yaml" in answer.result["reason"]


def test_ranks_measure_together_and_one_of_them_prints(execute: Exec) -> None:
    answer = execute("bench", "--model", NET, *FEW, "--num_gpus", "2", "--data_dir", "/tmp/data/lmdb", STOP_GRACE="3")
    result = answer.result
    assert (answer.code, result["world"], result["nodes"], len(result["devices"])) == (0, 2, 1, 2), answer.err
    assert result["effective_batch"] == 8
    assert result["throughput"] == pytest.approx(8 / result["time"]["mean"])


def test_what_one_rank_lacks_is_told_by_rank_0(execute: Exec) -> None:
    answer = execute(
        "run", f"{TOOLBOX}/bench", "--model", "/jobs/bench_rank.py:OfRank0", *FEW, NPROC_PER_NODE="2", STOP_GRACE="3"
    )
    assert (answer.code, answer.result["status"]) == (1, "failure")
    assert answer.result["reason"].startswith("Rank 1 on ")
    assert "it is not for rank 1" in answer.result["reason"]


# As `timeout` does it: its child is told, and then the group that the child is in.
TOLD_TWICE = f"""
bench --model {NET} --batch_size 4 --num_batches 10000000 2> /tmp/said &
until grep -q 'batches of 4' /tmp/said; do sleep 0.1; done
kill $!; kill $!
wait $!
"""


def test_a_measurement_that_is_told_to_end_says_so(execute: Exec) -> None:
    answer = execute("timeout", "120", "sh", "-c", TOLD_TWICE)
    assert (answer.code, answer.result["status"]) == (1, "failure")
    assert "was ended by SIGTERM" in answer.result["reason"]


def test_a_container_whose_memory_is_too_small_says_so(
    engine: docker.DockerClient, built: dict[str, dict[str, Any]]
) -> None:
    with_little = engine.containers.run(
        built[CPU]["ref"], ["bench", "--model", NET, "--batch_size", "100000", "--num_batches", "3"], detach=True,
        init=True, mem_limit="400m", memswap_limit="400m", volumes={str(JOBS): {"bind": "/jobs", "mode": "ro"}},
    )  # fmt: skip
    try:
        code = with_little.wait(timeout=120)["StatusCode"]
        result = json.loads(with_little.logs(stderr=False).splitlines()[-1])
    finally:
        with_little.remove(force=True)
    assert (code, result["status"], result["out_of_memory"]) == (1, "failure", True)
    assert "for lack of memory" in result["reason"]
