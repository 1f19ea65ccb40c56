"""Measured for real: the example's model by a plan that is killed and resumed, and two images compared."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.browser import NoBrowserError, chromium
from tests.e2e.conftest import CPU, ROOT, Completed, torchbake
from tests.e2e.registries import registry
from torchbake.engine.client import Engine
from torchbake.engine.owner import has_ended
from torchbake.engine.runner import owners
from torchbake.errors import BenchmarkError, EngineError, NoisyError, PublishError, SlowerError
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport

pytestmark = pytest.mark.benchmark

MODEL = "mlp.py:Mlp"
TOOLS = ROOT / ".torchbake/tools"
SLOWER = "torchbake-test/benchmark:slower"
# It computes as often as the image says, so that an image is slower whatever else takes the machine's cores.
OFTEN = """
import os

from mlp import Mlp


class Often(Mlp):
    def forward(self, samples):
        for _ in range(int(os.environ.get("TIMES", "1"))):
            out = super().forward(samples)
        return out
"""
COMPARED = {
    "models": ["often.py:Often"], "phases": "inference", "batch_sizes": 256, "num_batches": 8,
    "env": {"OMP_NUM_THREADS": "1"},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, built: dict[str, dict[str, Any]]) -> Path:
    """The example's folder, with a plan of two experiments in the image under test; containers may enter it."""
    place: Path = tmp_path_factory.mktemp("benchmark") / "plans"
    shutil.copytree(ROOT / "examples/benchmark", place)
    for each in (place, *place.parents[:3]):
        each.chmod(each.stat().st_mode | 0o055)
    plan = {"models": [MODEL], "batch_sizes": [64], "phases": ["training", "inference"], "num_batches": 5}
    (place / "plan.yaml").write_text(json.dumps({**plan, "images": [built[CPU]["ref"]]}))  # which is YAML too
    (place / "often.py").write_text(OFTEN)
    (place / "compare.yaml").write_text(json.dumps(COMPARED))
    return place


def words_of(folder: Path, *words: str) -> list[str]:
    return [*words, "--matrix", str(folder / "matrix.yaml"), "--format", "json"]


def benchmark(folder: Path, *words: str) -> Completed:
    return torchbake("benchmark", *words_of(folder, *words))


def test_a_dry_run_prints_the_examples_commands_and_runs_none() -> None:
    process = torchbake("benchmark", "examples/benchmark/plan.yaml", "--dry-run")
    assert process.returncode == 0, process.stderr
    commands = [line for line in process.stdout.splitlines() if line.startswith("docker run --rm ")]
    assert len(commands) == 4
    assert all("--shm-size=1g" in line and " bench --model " in line for line in commands)
    assert process.stdout.count("excluded takes minutes on a CPU") == 2


def test_without_the_docker_command_it_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    process = torchbake("benchmark", *words_of(folder, str(folder / "plan.yaml")), env={"PATH": str(tmp_path)})
    assert process.returncode == EngineError.exit_code
    assert process.stderr == "error: The docker command is not installed.\n  next: Run: nox -s setup\n"


def test_a_plan_that_was_killed_is_resumed_and_leaves_nothing(folder: Path, engine: docker.DockerClient) -> None:
    path = folder / "reports/benchmark/results.jsonl"
    command = [sys.executable, "-m", "torchbake", "benchmark", *words_of(folder, str(folder / "plan.yaml"))]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 240
        while not path.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert path.exists()
    final_state = benchmark(folder, str(folder / "plan.yaml"), "--report")
    assert final_state.returncode == 0, final_state.stderr
    value = json.loads(final_state.stdout)["experiments"]
    assert [each["state"] for each in value] == ["kept", "measured"]
    assert {each["result"]["model_title"] for each in value} == {"Mlp"}
    assert all(each["result"]["throughput"] > 0 and len(each["result"]["times"]) == 5 for each in value)
    assert len((folder / "reports/benchmark/results.csv").read_text().splitlines()) == 3
    assert not [owner for owner in owners(Engine(engine)) if has_ended(owner, same_machine=True)]


@pytest.mark.long  # tests/unit/benchmark has the outcomes
def test_nothing_larger_is_run_after_a_batch_that_does_not_fit(folder: Path, built: dict[str, dict[str, Any]]) -> None:
    """The samples of the second batch take 1.6 GB, and the container may take 700 MB."""
    plan = {
        "variables": {"sizes": [8], "memory": "700m"}, "models": [MODEL], "batch_sizes": "${sizes}",
        "images": [built[CPU]["ref"]], "num_batches": 3, "monitor_seconds": 0.2, "stop_at_out_of_memory": True,
        "when": [{"phase": "training", "set": {"env": {"SIZE": "${batch_size}", "OMP_NUM_THREADS": "1"}}}],
        "docker": {"options": ["--memory=${memory}", "--memory-swap=${memory}"]},
    }  # fmt: skip
    (folder / "largest.yaml").write_text(json.dumps(plan))
    words = (str(folder / "largest.yaml"), "-P", "sizes=[8, 200000, 400000]")
    process = benchmark(folder, *words, "--report")
    assert process.returncode == 0, process.stderr
    good, large, larger = json.loads(process.stdout)["experiments"]
    assert [each["state"] for each in (good, large, larger)] == ["measured", "out-of-memory", "not-run"]
    assert "for lack of memory" in large["reason"]
    assert "A batch of 200000 did not fit" in larger["reason"]
    records = [json.loads(line) for line in (folder / "reports/benchmark/results.jsonl").read_text().splitlines()]
    assert [(each["failure"], bool(each["result"])) for each in records[-3:]] == [
        ("", True), ("out-of-memory", False), ("not-run", False),
    ]  # fmt: skip
    assert records[-3]["experiment"]["settings"]["env"] == {"SIZE": "8", "OMP_NUM_THREADS": "1"}
    for each in (good, large):  # a run that was killed has its series too
        memory = [value for value in each["monitor"]["memory_bytes"] if value]
        assert max(memory) > 100e6
        assert max(each["monitor"]["cpu_percent"]) > 0
        assert each["monitor"]["seconds"] == sorted(each["monitor"]["seconds"])
    page = (folder / "reports/benchmark/largest.html").read_text()
    assert page.count('<svg class="line"') == 4  # CPU and memory of both
    assert "Out of memory" in page
    rows = list(csv.DictReader((folder / "reports/benchmark/monitor.csv").read_text().splitlines()))
    assert {row["status"] for row in rows} == {"success", "out-of-memory"}
    alone = benchmark(folder, str(folder / "largest.yaml"), "-P", "sizes=200000")
    assert alone.returncode == BenchmarkError.exit_code, alone.stderr


def test_containers_measure_together_as_nodes(folder: Path, built: dict[str, dict[str, Any]]) -> None:
    plan = {
        "models": [MODEL], "batch_sizes": [8], "nodes": [2], "num_batches": 3, "images": [built[CPU]["ref"]],
        "env": {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip
    (folder / "nodes.yaml").write_text(json.dumps(plan))
    process = benchmark(folder, str(folder / "nodes.yaml"))
    assert process.returncode == 0, process.stderr
    (each,) = json.loads(process.stdout)["experiments"]
    assert (each["result"]["nodes"], each["result"]["world"], each["result"]["effective_batch"]) == (2, 2, 16)
    networks = subprocess.run(["docker", "network", "ls", "--format", "{{.Name}}"], capture_output=True, check=True)
    assert b"torchbake-nodes" not in networks.stdout


@pytest.mark.long  # tests/e2e/test_report.py has a page in the same style
def test_the_page_is_read_in_light_and_dark(folder: Path) -> None:
    process = benchmark(folder, str(folder / "plan.yaml"), "--report")  # resumes: the plan may be measured
    assert process.returncode == 0, process.stderr
    page = folder / "reports/benchmark/plan.html"
    try:
        with chromium(TOOLS / "chromium") as browser:
            for scheme in ("light", "dark"):
                tab = browser.new_page(color_scheme=scheme, viewport={"width": 375, "height": 800})
                problems: list[str] = []
                tab.on("console", lambda message: problems.append(message.text))  # noqa: B023 - before the next
                tab.goto(page.as_uri())
                assert tab.locator(".results tbody tr").count() == 4  # speed and memory of each
                assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
                assert all(box["width"] > 10 for box in map(_box, tab.locator(".results .bar").all()))
                assert problems == []
    except NoBrowserError as error:
        pytest.skip(f"no browser: {error}")


def _box(locator: Any) -> dict[str, float]:
    matches: dict[str, float] = locator.bounding_box()
    return matches


@pytest.fixture(scope="module")
def slower(built: dict[str, dict[str, Any]], engine: docker.DockerClient) -> Iterator[str]:
    """The image with a variable by which it computes four times as often."""
    dockerfile = f"FROM {built[CPU]['ref']}\nENV TIMES=4\n"
    subprocess.run(["docker", "build", "-q", "-t", SLOWER, "-"], input=dockerfile, text=True, check=True)
    yield SLOWER
    engine.images.remove(SLOWER, force=True)


def compared(folder: Path, *words: str, code: int) -> dict[str, Any]:
    process = benchmark(folder, "compare", *words, "--plan", str(folder / "compare.yaml"))
    if process.returncode == NoisyError.exit_code:
        pytest.skip(f"not run: other tests take too much of this machine: {process.stderr.splitlines()[-2]}")
    assert process.returncode == code, process.stdout + process.stderr
    matches: dict[str, Any] = json.loads(process.stdout)
    return matches


@pytest.mark.long  # beside other tests it may be too noisy to tell
def test_an_image_that_computes_more_is_slower(folder: Path, built: dict[str, dict[str, Any]], slower: str) -> None:
    matches = compared(
        folder, built[CPU]["ref"], slower, "--rounds", "1", "--threshold", "10%", code=SlowerError.exit_code
    )
    (each,) = matches["experiments"]
    assert (matches["verdict"], each["verdict"]) == ("slower", "slower")
    assert each["difference"]["low"] > each["noise"]
    assert matches["a"]["digest"] != matches["b"]["digest"]


@pytest.mark.long
def test_an_image_is_the_same_as_itself(folder: Path, built: dict[str, dict[str, Any]]) -> None:
    """With the largest threshold: beside other tests, the runs of a round differ by half."""
    ref = built[CPU]["ref"]
    matches = compared(folder, ref, ref, "--rounds", "3", "--threshold", "90%", code=0)
    assert matches["verdict"] == "same"
    assert matches["a"]["digest"] == matches["b"]["digest"]


@pytest.fixture
def own_matrix(tmp_path: Path, bases: Path) -> Path:
    """This repository's matrix, whose images have a name of their own."""
    text = (ROOT / "matrix.yaml").read_text().replace("repository: torchbake/", "repository: torchbake-test/benchmark-")
    (tmp_path / "matrix.yaml").write_text(text)
    (tmp_path / ".torchbake").mkdir()
    (tmp_path / ".torchbake/bases").symlink_to(bases)
    shutil.copytree(ROOT / "images" / CPU, tmp_path / "images" / CPU)
    shutil.copy(ROOT / "images/builder.lock", tmp_path / "images/builder.lock")
    return tmp_path / "matrix.yaml"


@pytest.mark.long
def test_an_image_slower_than_its_release_is_not_released(own_matrix: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/benchmark", tmp_path / "plans")
    (tmp_path / "plans/often.py").write_text(OFTEN)
    plan = tmp_path / "plans/gate.yaml"
    plan.write_text(json.dumps(COMPARED))
    with registry(TOOLS, tmp_path / "registry") as running:
        there = Registry(RegistryTransport(running.host), Repository(host=running.host, path="team/benchmark-pytorch"))

        def release(*, code: int) -> Completed:
            for command in ("build", "test"):
                process = torchbake(command, CPU, "--matrix", str(own_matrix))
                assert process.returncode == 0, process.stderr
            words = ("--registry", f"{running.host}/team", "--benchmark", str(plan), "--matrix", str(own_matrix))
            process = torchbake("publish", CPU, *words)
            assert process.returncode == code, process.stderr
            return process

        assert f"{CPU} has no release yet" in release(code=0).stderr
        before = {tag: there.digest(tag) for tag in there.tags()}
        with own_matrix.open("a") as text:
            text.write('\nimages:\n  "*cpu*": {env: {TIMES: "4"}}\n')
        assert "slower by" in release(code=PublishError.exit_code).stdout
        assert {tag: there.digest(tag) for tag in there.tags()} == before
