"""Payloads of `smoke` in real containers: each passes in an intact image, and fails if its subject is sabotaged."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import docker
import pytest
from docker.models.containers import Container

from tests.e2e.conftest import CPU, CUDA, DEVEL, on_cuda
from tests.e2e.containers import output_of
from tests.e2e.nodes import JOBS
from tests.e2e.owned import OURS

pytestmark = pytest.mark.entrypoints

SABOTAGE = Path(__file__).parent / "sabotage"
ALONE = ("tensor", "autograd", "export", "loader", "versions", "examples", "ddp")
Line = dict[str, Any]


@dataclass(frozen=True)
class ReadOutput:
    """How `smoke` ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def line(self) -> Line:
        """The only one."""
        (line,) = self.lines
        assert isinstance(line, dict)
        return line


Smoke = Callable[..., ReadOutput]


@pytest.fixture(scope="module")
def smoke(
    engine: docker.DockerClient, built: dict[str, dict[str, Any]], request: pytest.FixtureRequest
) -> Iterator[Smoke]:
    """Run `smoke` in an image of a row, through `run` where it is to have ranks, with torch sabotaged or as it is."""
    containers: dict[str, Container] = {}

    def container_of(row: str) -> Container:
        if row not in containers:
            image = request.getfixturevalue("devel") if row == DEVEL else built[row]
            containers[row] = engine.containers.run(
                image["ref"], ["sleep", "infinity"], detach=True, init=True, shm_size="256m", network_mode="none",
                labels=OURS,
                volumes={str(SABOTAGE): {"bind": "/sabotage", "mode": "ro"}},
            )  # fmt: skip
        return containers[row]

    def run_in(*words: str, row: str = CPU, ranks: int = 0, sabotage: str = "", **env: str) -> ReadOutput:
        env |= {"PYTHONPATH": "/sabotage", "SABOTAGE": sabotage} if sabotage else {}
        command = ["smoke", *words]
        if ranks:
            env |= {"NPROC_PER_NODE": str(ranks), "GROUP_TIMEOUT": "20", "STOP_GRACE": "3"}
            command = ["run", "/opt/torchbake/smoke", *words]
        finished = container_of(row).exec_run(command, environment=env, demux=True)
        out, err = (part.decode() if part else "" for part in cast(tuple[bytes, bytes], finished.output))
        assert finished.exit_code is not None
        return ReadOutput(finished.exit_code, out, err)

    yield run_in
    for container in containers.values():
        container.remove(force=True)


@pytest.mark.long  # tests/e2e/test_images.py runs them by the command `test`
def test_an_image_as_it_is_passes(smoke: Smoke) -> None:
    answer = smoke(*ALONE)
    verdicts = {line["payload"]: (line["verdict"], line["reason"]) for line in answer.lines}
    assert verdicts == dict.fromkeys(ALONE, ("passed", ""))
    assert answer.code == 0
    for line in answer.lines:
        assert line["device"] == "cpu"
        assert line["checks"]
        assert line["figures"]["max-rss-mb"] > 50


def test_many_ranks_print_one_line(smoke: Smoke) -> None:
    answer = smoke("ddp", ranks=3)
    assert answer.code == 0, answer.err
    assert answer.line["verdict"] == "passed"
    assert answer.line["figures"]["world"] == 3
    assert len(answer.line["figures"]["ranks"]) == 3


def test_early_ranks_do_not_use_the_previous_groups_store(
    engine: docker.DockerClient, built: dict[str, dict[str, Any]]
) -> None:
    env = {"NPROC_PER_NODE": "3", "GROUP_TIMEOUT": "120"}
    volumes = {str(JOBS): {"bind": "/jobs", "mode": "ro"}}
    output_of(engine, built[CPU]["ref"], ["run", "/jobs/turns.py"], environment=env, volumes=volumes)


def test_a_rank_cannot_run_code_on_another(engine: docker.DockerClient, built: dict[str, dict[str, Any]]) -> None:
    output = output_of(
        engine, built[CPU]["ref"], ["run", "/jobs/hostile_rank.py", "/opt/torchbake"],
        environment={"NPROC_PER_NODE": "2"}, volumes={str(JOBS): {"bind": "/jobs", "mode": "ro"}},
        network_mode="none", labels=OURS,
    )  # fmt: skip
    *rounds, executed = [json.loads(line) for line in output.splitlines()]
    assert executed == ["executed", False]
    assert rounds[: len(rounds) // 2] == rounds[len(rounds) // 2 :]  # of `smoke`, of `bench`
    matches = dict(rounds)
    assert json.loads(matches.pop("what smoke sends")) == [["rank 0", ["is here"]]] * 2
    assert len(matches) == 8
    for name, sentence in matches.items():
        assert sentence.startswith("the message of rank 1 "), (name, sentence)


def test_a_network_learns_on_many_ranks_what_it_learns_alone(smoke: Smoke) -> None:
    alone, together = smoke("examples").line["figures"], smoke("examples", ranks=2).line["figures"]
    assert (alone["world"], together["world"]) == (1, 2)
    for figures in (alone, together):
        assert figures["digits-loss"][1] < figures["digits-loss"][0] / 10
        assert figures["digits-right"] > 0.95
        assert figures["regression-loss"][1] < figures["regression-loss"][0] / 10


@pytest.mark.long  # tests/e2e/test_images.py compiles in the CPU image
@pytest.mark.parametrize("row", [CPU, DEVEL])
def test_code_is_really_compiled_where_there_is_a_compiler(row: str, smoke: Smoke) -> None:
    answer = smoke("compile", row=row)
    assert (answer.code, answer.line["verdict"]) == (0, "passed"), answer.line
    assert answer.line["figures"]["built"] > 0
    assert "vectors" in answer.line["figures"]


def test_without_a_compiler_it_says_so(smoke: Smoke) -> None:
    for variable, compiler in (("CXX", "C++"), ("CC", "C")):
        answer = smoke("compile", **{variable: "/no/compiler"})
        assert (answer.code, answer.line["verdict"]) == (77, "not-run")
        assert answer.line["reason"].startswith(f"no {compiler} compiler")


@pytest.mark.parametrize(
    ("row", "payload", "reason"),
    [
        (CPU, "tensor", "this torch, 2.13.0+cpu, is built without CUDA"),
        on_cuda("tensor", "no GPU can be used"),
        on_cuda("nccl", "no GPU can be used"),
    ],
)
def test_without_a_gpu_nothing_is_computed_in_its_place(smoke: Smoke, row: str, payload: str, reason: str) -> None:
    answer = smoke(payload, "--device", "cuda", row=row)
    assert (answer.code, answer.line["verdict"], answer.line["checks"]) == (77, "not-run", {})
    assert answer.line["reason"].startswith(reason)


# The bandwidth check of NCCL's payload in a group of one rank, which needs no GPU.
ONE_RANK = """
from importlib.machinery import SourceFileLoader
from types import SimpleNamespace

SourceFileLoader("bench", "/opt/torchbake/bench").load_module()  # lets its packages be imported as it does
from toolbox.payloads import nccl
from toolbox.payloads.verdict import Checks

checks = Checks()
nccl._bandwidth(checks, SimpleNamespace(size=1))
print(checks.figures, checks.failures, checks.not_run)
"""


def test_one_rank_has_no_bandwidth(engine: docker.DockerClient, built: dict[str, dict[str, Any]]) -> None:
    output = output_of(engine, built[CPU]["ref"], ["python", "-c", ONE_RANK], labels=OURS)
    assert output.splitlines()[-1] == "{} [] {'bandwidth': 'there is one rank: nothing goes from GPU to GPU'}"


# Each row: sabotages, image, number of ranks, the payload that must fail, and parts of its reason, which names at most
# three checks. A row combines sabotages of different checks, as each row loads torch again.
SABOTAGES = [
    ("one_number_of_a_product_is_wrong", CPU, 0, "tensor", ["matmul-bfloat16: "]),
    ("convolutions_are_computed_elsewhere", CPU, 0, "tensor", ["the result is on meta, not on cpu"]),
    ("det_is_a_little_off,one_seed_gives_many_results", CPU, 0, "tensor",
     ["linalg-float64: number 0 is 25.025, the reference is 25", "random: one seed gave two results"]),
    ("linalg_crashes", CPU, 0, "tensor", ["the process ended by SIGSEGV in the check linalg-float64"]),
    ("linalg_hangs", CPU, 0, "tensor", ["no end after 5 s in the check linalg-float64: it was killed"]),
    ("torch_cannot_be_imported", CPU, 0, "tensor", ["torch cannot be imported by "]),
    ("gradients_are_a_little_off,infinite_gradients_are_used", CPU, 0, "autograd",
     ["gradients: number 0 is ", "weights after a step with an infinite gradient"]),
    ("optimizers_do_nothing,autocast_does_nothing", CPU, 0, "autograd",
     ["fit: the loss went from ", "amp-bfloat16: the result is torch.float32"]),
    ("nothing_is_compiled", CPU, 0, "compile", ["built: nothing was built"]),
    ("anything_is_unpickled,optimizers_forget", CPU, 0, "export",
     ["weights-only: ", "after a checkpoint: values differ"]),
    ("scripts_forget_their_loop", CPU, 0, "export", ["script: "]),
    ("loaders_have_no_workers", CPU, 0, "loader", ["the process ended by SIGKILL in the check dead-worker"]),
    ("samples_come_unshared", CPU, 0, "loader", ["not in shared memory"]),
    ("cuda_is_of_another_release", CUDA, 0, "versions", ["torch is built with CUDA 12.4, and libcudart is 12.6"]),
    ("losses_have_no_slope", CPU, 0, "examples", ["digits: the loss went from 0 to 0"]),
    ("ranks_train_alone", CPU, 2, "examples", ["the parameters of rank 1 are not those of rank 0"]),
    ("ranks_train_alone,barriers_do_not_wait", CPU, 2, "ddp",
     ["before the first step, the parameters of rank 1 are not those of rank 0",
      "barrier: rank 0: it was let through when 1 of 2 ranks had come"]),
    ("ranks_do_not_add,ranks_hear_nothing,messages_do_not_come", CPU, 2, "ddp",
     ["all-reduce: rank 0: the sum of 2 ranks as torch.float32 is 0, not 1",
      "broadcast: rank 0: the broadcast of rank 1 has arrived changed",
      "send-recv: rank 0: the values of rank 1 did not arrive here"]),
    ("one_rank_is_wrong", CPU, 2, "ddp", ["broadcast: rank 1: the broadcast of rank 0 has arrived changed"]),
]  # fmt: skip
# Other rows have nearly the same.
LONG = ("convolutions_are_computed_elsewhere", "one_rank_is_wrong", "ranks_train_alone", "scripts_forget_their_loop")


@pytest.mark.parametrize(
    ("sabotage", "row", "ranks", "payload", "words"),
    [
        pytest.param(
            *one,
            id=f"{one[3]}-{one[0]}",
            marks=pytest.mark.cuda if one[1] == CUDA else pytest.mark.long if one[0] in LONG else (),
        )
        for one in SABOTAGES
    ],
)
def test_it_fails_when_what_it_looks_at_is_broken(  # noqa: PLR0917 - a column each
    smoke: Smoke, sabotage: str, row: str, ranks: int, payload: str, words: list[str]
) -> None:
    answer = smoke(payload, "--timeout", "5" if "hangs" in sabotage else "240", row=row, ranks=ranks, sabotage=sabotage)
    assert (answer.code, answer.line["verdict"]) == (1, "failed"), answer
    assert [word for word in words if word not in answer.line["reason"]] == [], answer.line["reason"]


def test_the_cause_is_said_when_a_rank_raises(smoke: Smoke) -> None:
    answer = smoke("ddp", ranks=2, sabotage="one_rank_raises")
    assert (answer.code, answer.line["verdict"]) == (1, "failed"), answer
    last_words = answer.err.partition("run: the job failed. First: rank 1 (node 0, local rank 1): exit code 1.")[2]
    assert "ValueError: sabotage" in last_words, answer.err


def test_what_libraries_print_does_not_come_between_the_lines(smoke: Smoke) -> None:
    answer = smoke("tensor", sabotage="libraries_print")
    assert answer.line["payload"] == "tensor"
    assert '{"payload": "noise"}' in answer.err


def test_versions_are_held_against_what_was_promised(smoke: Smoke) -> None:
    value = smoke("versions").line["figures"]["found"]
    assert value["cuda"] is None
    assert smoke("versions", "--expect", json.dumps(value)).line["verdict"] == "passed"
    wrong = {"torch": "2.0.0", "python": "3.10", "cuda": "12.6", "cudnn": "9", "nccl": "2.20"}
    line = smoke("versions", "--expect", json.dumps(wrong)).line
    assert line["verdict"] == "failed"
    assert re.findall(r"(\w+) is ", line["reason"]) == [*wrong]


def test_a_word_that_is_no_payload_is_refused(smoke: Smoke) -> None:
    answer = smoke("nothing")
    assert (answer.code, answer.out) == (64, "")
    assert "unknown payload 'nothing', choose from tensor, autograd" in answer.err
