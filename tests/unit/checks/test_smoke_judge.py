"""Verdicts from the output and the ends of smoke tests."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchbake.checks.smoke_jobs import RankLayout, SmokeJob
from torchbake.checks.smoke_judge import judge, lines_in
from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.engine.runner import ContainerEnd

SINGLE = SmokeJob(payloads=("tensor", "autograd", "compile"), device="cpu")
DDP = SmokeJob(payloads=("ddp",), device="cpu", layout=RankLayout(nodes=2, nproc=2, order="workers-first"))


def only(results: tuple[CheckResult, ...]) -> CheckResult:
    assert len(results) == 1
    return results[0]


def line(payload: str, verdict: str = "passed", device: str = "cpu", **more: Any) -> str:
    return json.dumps({"payload": payload, "device": device, "verdict": verdict, "seconds": 0.5, **more}) + "\n"


def end_of(code: int = 0, stdout: str = "", *, name: str = "node0", **more: Any) -> ContainerEnd:
    return ContainerEnd(name=name, code=code, seconds=2.0, at=100.0, stdout=stdout, **more)


def test_each_line_is_a_result_with_its_figures() -> None:
    out = (
        line("tensor", checks={"matmul": 0.1}, figures={"gflops": 3})
        + line("autograd")
        + line("compile", "not-run", reason="no compiler")
    )
    tensor, autograd, compile_ = judge(SINGLE, [end_of(stdout=out)])
    assert (tensor.id, tensor.outcome, tensor.seconds) == ("smoke.tensor[cpu]", Outcome.PASSED, 0.5)
    assert tensor.figures == {"device": "cpu", "gflops": 3, "checks": {"matmul": 0.1}}
    assert autograd.outcome is Outcome.PASSED
    assert (compile_.outcome, compile_.reason) == (Outcome.NOT_RUN, "no compiler")


@pytest.mark.parametrize("job", [SINGLE, DDP])
def test_programs_of_another_architecture_were_not_run(job: SmokeJob) -> None:
    results = judge(job, [end_of(1, stderr="exec /usr/bin/tini: exec format error")])
    assert [check.id for check in results] == [*job.check_ids]
    assert {check.outcome for check in results} == {Outcome.NOT_RUN}
    assert all("no emulator" in check.reason for check in results)


def test_a_failed_line_is_a_failed_check_and_the_others_stand() -> None:
    out = line("tensor", "failed", reason="matmul-float16: off by 3") + line("autograd") + line("compile")
    tensor, autograd, compile_ = judge(SINGLE, [end_of(1, out)])
    assert (tensor.outcome, tensor.reason) == (Outcome.FAILED, "matmul-float16: off by 3")
    assert (autograd.outcome, compile_.outcome) == (Outcome.PASSED, Outcome.PASSED)


def test_a_silent_payload_failed_and_later_ones_did_not_run() -> None:
    stderr = "\n".join(f"line {number}" for number in range(50)) + "\nFatal Python error: Segmentation fault\n"
    tensor, autograd, compile_ = judge(SINGLE, [end_of(139, line("tensor"), stderr=stderr)])
    assert tensor.outcome is Outcome.PASSED
    assert autograd.outcome is Outcome.FAILED
    assert autograd.summary == "no verdict: node0 was ended by SIGSEGV: Fatal Python error: Segmentation fault"
    assert "line 49" in autograd.reason
    assert "line 10\n" not in autograd.reason
    assert (compile_.outcome, compile_.reason) == (Outcome.NOT_RUN, "smoke ended before it, in autograd")


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ({"code": 137, "out_of_memory": True}, "was killed for lack of memory"),
        ({"code": 137, "timed_out": True}, "did not end within 2 s, and was killed"),
        ({"code": 127, "problem": 'exec: "smoke": not found'}, 'did not start: exec: "smoke": not found'),
        ({"code": 3}, "ended with 3"),
        ({"code": 0}, "ended with 0"),
        ({"code": 137}, "was ended by SIGKILL"),
        ({"code": 255}, "was ended by signal 127"),
    ],
)
def test_how_a_silent_container_ended_is_said(how: dict[str, Any], word: str) -> None:
    for job in (SINGLE, DDP):
        results = judge(job, [end_of(**how), *([] if job is SINGLE else [end_of(name="node1")])])
        assert results[0].outcome is Outcome.FAILED
        assert word in results[0].summary


def test_a_crash_after_good_lines_is_a_failure() -> None:
    out = line("tensor") + line("autograd") + line("compile")
    tensor, autograd, compile_ = judge(SINGLE, [end_of(134, out, stderr="terminate called\n")])
    assert (tensor.outcome, autograd.outcome, compile_.outcome) == (Outcome.PASSED, Outcome.PASSED, Outcome.FAILED)
    assert compile_.summary == "it said passed, but then it was ended by SIGABRT"


def test_a_computation_on_the_wrong_device_is_a_failure() -> None:
    job = SmokeJob(payloads=("tensor",), device="cuda", given_gpu=True)
    result = only(judge(job, [end_of(stdout=line("tensor", device="cpu"))]))
    assert (result.outcome, result.reason) == (Outcome.FAILED, "it ran on cpu, not on cuda")


@pytest.mark.parametrize(("payload", "outcome"), [("tensor", Outcome.FAILED), ("compile", Outcome.NOT_RUN)])
def test_a_gpu_that_was_given_and_is_not_seen_is_a_failure(payload: str, outcome: Outcome) -> None:
    job = SmokeJob(payloads=(payload,), device="cuda", given_gpu=True)
    result = only(judge(job, [end_of(77, line(payload, "not-run", "cuda", reason="no CUDA device"))]))
    assert result.outcome is outcome
    assert "no CUDA device" in result.reason


def test_an_image_that_promises_a_compiler_must_compile() -> None:
    for device, gpu, promise, outcome in (
        ("cpu", False, True, Outcome.FAILED), ("cuda", True, True, Outcome.FAILED),
        ("cuda", False, True, Outcome.NOT_RUN), ("cpu", False, False, Outcome.NOT_RUN),
    ):  # fmt: skip
        job = SmokeJob(payloads=("compile",), device=device, given_gpu=gpu, given_compiler=promise)  # type: ignore[arg-type]
        result = only(judge(job, [end_of(77, line("compile", "not-run", device, reason="no C++ compiler"))]))
        assert result.outcome is outcome, job
        assert "no C++ compiler" in result.reason


@pytest.mark.parametrize("noise", ["Welcome to this image!\n", '{"banner": 1}\n', '{"payload": "tensor"}\n', "{\n"])
def test_what_else_is_printed_does_no_harm(noise: str) -> None:
    assert [value.payload for value in lines_in(noise + line("tensor") + noise)] == ["tensor"]


def test_two_verdicts_of_one_payload_are_a_failure() -> None:
    result = judge(SINGLE, [end_of(stdout=line("tensor") * 2 + line("autograd") + line("compile"))])[0]
    assert (result.outcome, result.reason) == (Outcome.FAILED, "it printed 2 verdicts")


def test_a_job_passes_if_rank_0_reports_it_and_all_nodes_exit_0() -> None:
    result = only(judge(DDP, [end_of(stdout=line("ddp", figures={"world": 4})), end_of(name="node1")]))
    assert (result.id, result.outcome) == ("smoke.ddp[gloo,2x2,workers-first]", Outcome.PASSED)
    assert result.figures["world"] == 4
    assert result.figures["nodes"] == {"node0": {"code": 0, "seconds": 2.0}, "node1": {"code": 0, "seconds": 2.0}}


@given(st.lists(st.sampled_from([0, 1, 3, 77, 89, 134, 137]), min_size=2, max_size=4))
def test_no_code_of_any_node_is_forgiven(codes: list[int]) -> None:
    nodes = [end_of(code, line("ddp") if not rank else "", name=f"node{rank}") for rank, code in enumerate(codes)]
    assert (only(judge(DDP, nodes)).outcome is Outcome.PASSED) is (not any(codes))


def test_a_crashed_worker_is_named_with_the_cause_of_the_job() -> None:
    first = "run: the job failed. First: rank 2 (node 1, local rank 0): exit code 3."
    stderr = f"run: waiting\n{first}\nrun: its last lines:\n    ValueError: no\n"
    nodes = [replace(end_of(3, stderr=stderr), at=5.0), replace(end_of(3, name="node1", stderr=stderr), at=4.0)]
    result = only(judge(DDP, nodes))
    assert result.summary == f"node1 ended with 3: {first}"
    assert "ValueError: no" in result.reason


def test_memory_is_the_cause_even_if_it_did_not_end_first() -> None:
    nodes = [end_of(89), replace(end_of(137, name="node1", out_of_memory=True), at=500.0)]
    assert only(judge(DDP, nodes)).summary == "node1 was killed for lack of memory"


def test_nodes_that_each_run_the_whole_job_alone_have_failed() -> None:
    nodes = [end_of(stdout=line("ddp")), end_of(stdout=line("ddp"), name="node1")]
    result = only(judge(DDP, nodes))
    assert (result.outcome, result.reason) == (
        Outcome.FAILED,
        "2 ranks each printed a verdict: they did not work together",
    )


BOTH = replace(DDP, payloads=("ddp", "examples"))


def outcomes_of(job: SmokeJob, *nodes: ContainerEnd) -> list[tuple[Outcome, str]]:
    return [(result.outcome, result.summary) for result in judge(job, nodes)]


def test_payloads_share_a_job_and_each_has_its_own_verdict() -> None:
    stdout = line("ddp") + line("examples")
    assert outcomes_of(BOTH, end_of(stdout=stdout), end_of(name="node1")) == [(Outcome.PASSED, "")] * 2
    assert outcomes_of(
        BOTH, end_of(1, line("ddp") + line("examples", "failed", reason="no")), end_of(1, name="node1")
    ) == [
        (Outcome.PASSED, ""),
        (Outcome.FAILED, "no"),
    ]


def test_payloads_after_a_failed_one_are_not_called_failed() -> None:
    before = (Outcome.NOT_RUN, "the job ended before it, in ddp")
    nodes = end_of(1, line("ddp", "failed", reason="a wrong sum")), end_of(1, name="node1")
    assert outcomes_of(BOTH, *nodes) == [(Outcome.FAILED, "a wrong sum"), before]
    assert outcomes_of(BOTH, end_of(139), end_of(89, name="node1")) == [
        (Outcome.FAILED, "node0 was ended by SIGSEGV"),
        before,
    ]


def test_a_failed_node_counts_against_its_current_payload() -> None:
    passed = (Outcome.PASSED, "")
    crashed = (Outcome.FAILED, "node1 was ended by SIGSEGV")
    for stdout in (line("ddp"), line("ddp") + line("examples")):
        assert outcomes_of(BOTH, end_of(stdout=stdout), end_of(139, name="node1")) == [passed, crashed]


def test_a_job_that_could_not_run_says_why() -> None:
    nodes = [end_of(77, line("ddp", "not-run", reason="too few GPUs")), end_of(77, name="node1")]
    result = only(judge(DDP, nodes))
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, "too few GPUs")


@given(st.sampled_from(["passed", "failed", "not-run"]), st.integers(0, 255), st.booleans(), st.booleans())
def test_what_a_line_says_never_turns_a_bad_end_into_a_pass(verdict: str, code: int, late: bool, memory: bool) -> None:
    end = end_of(code, line("tensor", verdict), timed_out=late, out_of_memory=memory)
    single = only(judge(SmokeJob(payloads=("tensor",), device="cpu"), [end]))
    good = verdict == "passed" and code == 0 and not late
    assert (single.outcome is Outcome.PASSED) is good
    if verdict == "failed":
        assert single.outcome is Outcome.FAILED
