"""What smoke tests run, and what is made of what they print."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.pytorch.launch.contract import contract_of
from entrypoints.pytorch.payloads import cli as payloads
from tests.images.checks import as_markdown, smoke_checks
from torchbake.checks.smoke_jobs import PAYLOADS, Job, Layout, Options, jobs_of, judge, lines_in, nodes_of
from torchbake.checks.smoke_run import OnHost, Session
from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.core.problem import unknown
from torchbake.engine.gpu import Gpu
from torchbake.engine.runner import Ended
from torchbake.oci.labels import versions_in

NONE = Gpu(how="none", reason="the engine has no nvidia runtime")
CDI = Gpu(how="cdi", reason="/etc/cdi/nvidia.yaml describes it")
SINGLE = Job(payloads=("tensor", "autograd", "compile"), device="cpu")
DDP = Job(payloads=("ddp",), device="cpu", layout=Layout(nodes=2, nproc=2, order="workers-first"))


def ids(family: str, gpu: Gpu = NONE, **options: Any) -> list[str]:
    return [name for job in jobs_of(family, gpu, Options(**options)) for name in job.check_ids]


def line(payload: str, verdict: str = "passed", device: str = "cpu", **more: Any) -> str:
    return json.dumps({"payload": payload, "device": device, "verdict": verdict, "seconds": 0.5, **more}) + "\n"


def ended(code: int = 0, stdout: str = "", *, name: str = "node0", **more: Any) -> Ended:
    return Ended(name=name, code=code, seconds=2.0, at=100.0, stdout=stdout, **more)


def only(results: tuple[CheckResult, ...]) -> CheckResult:
    assert len(results) == 1
    return results[0]


def test_the_payloads_are_those_of_the_images() -> None:
    assert set(PAYLOADS) == set(payloads.PAYLOADS)


def test_the_catalogue_has_a_line_for_each_payload() -> None:
    assert sorted(check.id for check in smoke_checks()) == [f"smoke.{name}" for name in sorted(PAYLOADS)]
    assert all(20 < len(check.reason) <= 110 and "|" not in check.reason for check in smoke_checks())
    page = as_markdown(smoke_checks())
    assert page.startswith("### smoke\n")
    assert "| `smoke.nccl` | PyTorch, CUDA | " in page


def test_a_cpu_image_is_judged_on_the_cpu_alone() -> None:
    assert ids("cpu", CDI) == [
        *(
            f"smoke.{name}[cpu]"
            for name in ("tensor", "autograd", "compile", "export", "loader", "versions", "examples")
        ),
        "smoke.ddp[gloo,2x2,workers-first]",
        "smoke.examples[gloo,2x2,workers-first]",
        "smoke.ddp[gloo,2x2,master-first]",
    ]


def test_a_cuda_image_is_judged_on_both_devices_wherever_it_runs() -> None:
    assert set(ids("cuda")) == set(ids("cuda", CDI)) > set(ids("cpu"))
    more = [name for name in ids("cuda") if name not in ids("cpu")]
    assert more == [
        *(
            f"smoke.{name}[cuda]"
            for name in ("tensor", "autograd", "compile", "export", "loader", "versions", "examples")
        ),
        "smoke.nccl[nccl,1xauto]",
        "smoke.examples[nccl,1xauto]",
    ]


@pytest.mark.parametrize(
    ("mode", "gpu", "reason"),
    [("auto", NONE, "no GPU: the engine has no nvidia runtime"), ("off", CDI, "GPU checks are off (--gpu off)")],
)
def test_without_a_gpu_only_what_needs_one_is_not_run(mode: str, gpu: Gpu, reason: str) -> None:
    jobs = jobs_of("cuda", gpu, Options(gpu=mode))
    assert {job.problem for job in jobs if job.device == "cuda"} == {unknown(reason)}
    assert {job.problem for job in jobs if job.device == "cpu"} == {None}
    results = [result for job in jobs if job.problem for result in job.not_started()]
    assert {(result.outcome, result.reason) for result in results} == {(Outcome.NOT_RUN, reason)}


def test_where_a_gpu_is_required_to_have_none_is_a_failure_of_each_check_that_needs_it() -> None:
    jobs = jobs_of("cuda", NONE, Options(gpu="require"))
    results = [result for job in jobs if job.problem for result in job.not_started()]
    assert {result.id for result in results} == set(ids("cuda")) - set(ids("cpu"))
    reason = "a GPU is required (--gpu require), but the engine has no nvidia runtime"
    assert {(result.outcome, result.reason) for result in results} == {(Outcome.FAILED, reason)}
    # A build for the CPU needs none, whatever is required of the others.
    assert not any(job.problem for job in jobs_of("cpu", NONE, Options(gpu="require")))


def test_with_a_gpu_all_is_run_and_only_the_jobs_on_cuda_get_it() -> None:
    jobs = jobs_of("cuda", CDI, Options())
    assert [job.problem for job in jobs] == [None] * len(jobs)
    assert all(job.given_gpu == (job.device == "cuda") for job in jobs)


def test_nccl_asked_for_by_name_is_not_silently_left_out_on_a_cpu_image() -> None:
    job = only(jobs_of("cpu", NONE, Options(payloads=("nccl",))))  # type: ignore[arg-type]
    assert isinstance(job, Job)
    assert job.problem
    assert "CPU build" in job.problem.reason


def test_layouts() -> None:
    assert ids("cpu", payloads=("ddp",), nodes=3, nproc=1, orders=("master-first",)) == [
        "smoke.ddp[gloo,3x1,master-first]"
    ]
    assert ids("cpu", payloads=("ddp",), nodes=1) == ["smoke.ddp[gloo,1x2]"]
    # One rank of examples is what the single container runs already.
    assert ids("cpu", payloads=("ddp", "examples"), nodes=1, nproc=1) == ["smoke.examples[cpu]", "smoke.ddp[gloo,1x1]"]


@given(
    st.sampled_from(["cpu", "cuda"]),
    st.sampled_from([NONE, CDI]),
    st.builds(
        Options,
        gpu=st.sampled_from(["auto", "off"]),
        nodes=st.integers(1, 4),
        nproc=st.integers(1, 4),
        payloads=st.sets(st.sampled_from(PAYLOADS), min_size=1).map(
            lambda some: tuple(p for p in PAYLOADS if p in some)
        ),
        timeout=st.integers(1, 900),
    ),
)
def test_ids_are_unique_and_each_payload_that_was_asked_for_is_there(family: str, gpu: Gpu, options: Options) -> None:
    jobs = jobs_of(family, gpu, options)
    names = [name for job in jobs for name in job.check_ids]
    assert len(names) == len(set(names))
    asked = set(options.payloads) - ({"nccl"} if options.payloads == PAYLOADS and family == "cpu" else set())
    assert {payload for job in jobs for payload in job.payloads} == asked


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 900))
def test_every_node_is_told_the_same_job_and_a_rank_of_its_own(nodes: int, nproc: int, timeout: int) -> None:
    job = replace(DDP, layout=Layout(nodes=nodes, nproc=nproc))
    told = nodes_of(job, {}, timeout)
    contracts = [contract_of(node.env) for node in told]
    ranks = [contract.first_rank + local for contract in contracts for local in range(contract.nproc_per_node)]
    assert sorted(ranks) == list(range(nodes * nproc))
    assert len({(c.mode, c.world_size, c.master_addr, c.master_port, c.group_timeout) for c in contracts}) == 1
    assert contracts[0].distributed
    assert len({node.command for node in told}) == 1
    words = told[0].command
    assert words[:3] == ("/opt/torchbake/run", "/opt/torchbake/smoke", "ddp")
    assert payloads.parse(list(words[2:])).timeout == timeout
    # Ours is the last of all limits: whoever knows more about what hangs has said so by then.
    assert contracts[0].rendezvous_timeout < job.limit(timeout)
    assert timeout < job.limit(timeout)


def test_expected_versions_reach_the_payload_that_compares_them() -> None:
    labels = {"org.torchbake.torch": "2.13.0+cpu", "org.torchbake.python": "3.11", "org.torchbake.id": "x"}
    expected = versions_in(labels)
    assert expected == {"torch": "2.13.0+cpu", "cuda": None, "cudnn": None, "nccl": None, "python": "3.11"}
    words = only(nodes_of(Job(payloads=("tensor", "versions"), device="cpu"), expected, 60)).command  # type: ignore[arg-type,attr-defined]
    parsed = payloads.parse(list(words[1:]))
    assert parsed.names == ("tensor", "versions")
    assert parsed.options.expected == expected


def test_an_image_of_somebody_else_promises_nothing() -> None:
    assert versions_in({"org.opencontainers.image.version": "1"}) == {}


def test_each_line_is_a_result_with_its_figures() -> None:
    out = (
        line("tensor", checks={"matmul": 0.1}, figures={"gflops": 3})
        + line("autograd")
        + line("compile", "not-run", reason="no compiler")
    )
    tensor, autograd, compile_ = judge(SINGLE, [ended(stdout=out)])
    assert (tensor.id, tensor.outcome, tensor.seconds) == ("smoke.tensor[cpu]", Outcome.PASSED, 0.5)
    assert tensor.figures == {"device": "cpu", "gflops": 3, "checks": {"matmul": 0.1}}
    assert autograd.outcome is Outcome.PASSED
    assert (compile_.outcome, compile_.reason) == (Outcome.NOT_RUN, "no compiler")


def test_a_failed_line_is_a_failed_check_and_the_others_stand() -> None:
    out = line("tensor", "failed", reason="matmul-float16: off by 3") + line("autograd") + line("compile")
    tensor, autograd, compile_ = judge(SINGLE, [ended(1, out)])
    assert (tensor.outcome, tensor.reason) == (Outcome.FAILED, "matmul-float16: off by 3")
    assert (autograd.outcome, compile_.outcome) == (Outcome.PASSED, Outcome.PASSED)


def test_a_payload_without_a_line_failed_with_code_and_last_words_and_those_after_it_did_not_run() -> None:
    stderr = "\n".join(f"line {number}" for number in range(50)) + "\nFatal Python error: Segmentation fault\n"
    tensor, autograd, compile_ = judge(SINGLE, [ended(139, line("tensor"), stderr=stderr)])
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
        results = judge(job, [ended(**how), *([] if job is SINGLE else [ended(name="node1")])])
        assert results[0].outcome is Outcome.FAILED
        assert word in results[0].summary


def test_a_crash_after_good_lines_is_a_failure() -> None:
    out = line("tensor") + line("autograd") + line("compile")
    tensor, autograd, compile_ = judge(SINGLE, [ended(134, out, stderr="terminate called\n")])
    assert (tensor.outcome, autograd.outcome, compile_.outcome) == (Outcome.PASSED, Outcome.PASSED, Outcome.FAILED)
    assert compile_.summary == "it said passed, but then it was ended by SIGABRT"


def test_a_computation_on_the_wrong_device_is_a_failure() -> None:
    job = Job(payloads=("tensor",), device="cuda", given_gpu=True)
    result = only(judge(job, [ended(stdout=line("tensor", device="cpu"))]))
    assert (result.outcome, result.reason) == (Outcome.FAILED, "it ran on cpu, and was to run on cuda")


@pytest.mark.parametrize(("payload", "outcome"), [("tensor", Outcome.FAILED), ("compile", Outcome.NOT_RUN)])
def test_a_gpu_that_was_given_and_is_not_seen_is_a_failure(payload: str, outcome: Outcome) -> None:
    job = Job(payloads=(payload,), device="cuda", given_gpu=True)
    result = only(judge(job, [ended(77, line(payload, "not-run", "cuda", reason="no CUDA device"))]))
    assert result.outcome is outcome
    assert "no CUDA device" in result.reason


@pytest.mark.parametrize("noise", ["Welcome to this image!\n", '{"banner": 1}\n', '{"payload": "tensor"}\n', "{\n"])
def test_what_else_is_printed_does_no_harm(noise: str) -> None:
    assert [found.payload for found in lines_in(noise + line("tensor") + noise)] == ["tensor"]


def test_two_verdicts_of_one_payload_are_a_failure() -> None:
    result = judge(SINGLE, [ended(stdout=line("tensor") * 2 + line("autograd") + line("compile"))])[0]
    assert (result.outcome, result.reason) == (Outcome.FAILED, "it printed 2 verdicts")


def test_a_job_passes_when_rank_0_says_so_and_every_node_ended_well() -> None:
    result = only(judge(DDP, [ended(stdout=line("ddp", figures={"world": 4})), ended(name="node1")]))
    assert (result.id, result.outcome) == ("smoke.ddp[gloo,2x2,workers-first]", Outcome.PASSED)
    assert result.figures["world"] == 4
    assert result.figures["nodes"] == {"node0": {"code": 0, "seconds": 2.0}, "node1": {"code": 0, "seconds": 2.0}}


@given(st.lists(st.sampled_from([0, 1, 3, 77, 89, 134, 137]), min_size=2, max_size=4))
def test_no_code_of_any_node_is_forgiven(codes: list[int]) -> None:
    nodes = [ended(code, line("ddp") if not rank else "", name=f"node{rank}") for rank, code in enumerate(codes)]
    assert (only(judge(DDP, nodes)).outcome is Outcome.PASSED) is (not any(codes))


def test_a_crashed_worker_is_named_with_the_cause_of_the_job() -> None:
    first = "run: the job failed. First: rank 2 (node 1, local rank 0): exit code 3."
    said = f"run: waiting\n{first}\nrun: its last words:\n    ValueError: no\n"
    nodes = [replace(ended(3, stderr=said), at=5.0), replace(ended(3, name="node1", stderr=said), at=4.0)]
    result = only(judge(DDP, nodes))
    assert result.summary == f"node1 ended with 3: {first}"
    assert "ValueError: no" in result.reason


def test_memory_is_the_cause_even_when_it_was_not_the_first_to_end() -> None:
    nodes = [ended(89), replace(ended(137, name="node1", out_of_memory=True), at=500.0)]
    assert only(judge(DDP, nodes)).summary == "node1 was killed for lack of memory"


def test_nodes_that_each_take_themselves_for_the_whole_job_have_failed() -> None:
    nodes = [ended(stdout=line("ddp")), ended(stdout=line("ddp"), name="node1")]
    result = only(judge(DDP, nodes))
    assert (result.outcome, result.reason) == (
        Outcome.FAILED,
        "2 ranks each printed a verdict: they did not work together",
    )


BOTH = replace(DDP, payloads=("ddp", "examples"))


def outcomes_of(job: Job, *nodes: Ended) -> list[tuple[Outcome, str]]:
    return [(result.outcome, result.summary) for result in judge(job, nodes)]


def test_payloads_share_a_job_and_each_has_its_own_verdict() -> None:
    told = line("ddp") + line("examples")
    assert outcomes_of(BOTH, ended(stdout=told), ended(name="node1")) == [(Outcome.PASSED, "")] * 2
    assert outcomes_of(
        BOTH, ended(1, line("ddp") + line("examples", "failed", reason="no")), ended(1, name="node1")
    ) == [
        (Outcome.PASSED, ""),
        (Outcome.FAILED, "no"),
    ]


def test_what_a_failed_payload_kept_from_running_is_not_called_failed() -> None:
    before = (Outcome.NOT_RUN, "the job ended before it, in ddp")
    nodes = ended(1, line("ddp", "failed", reason="a wrong sum")), ended(1, name="node1")
    assert outcomes_of(BOTH, *nodes) == [(Outcome.FAILED, "a wrong sum"), before]
    assert outcomes_of(BOTH, ended(139), ended(89, name="node1")) == [
        (Outcome.FAILED, "node0 was ended by SIGSEGV"),
        before,
    ]


def test_a_node_that_failed_is_held_against_the_payload_in_which_it_did() -> None:
    passed = (Outcome.PASSED, "")
    crashed = (Outcome.FAILED, "node1 was ended by SIGSEGV")
    for told in (line("ddp"), line("ddp") + line("examples")):
        assert outcomes_of(BOTH, ended(stdout=told), ended(139, name="node1")) == [passed, crashed]


def test_a_job_that_could_not_run_says_why() -> None:
    nodes = [ended(77, line("ddp", "not-run", reason="too few GPUs")), ended(77, name="node1")]
    result = only(judge(DDP, nodes))
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, "too few GPUs")


@given(st.sampled_from(["passed", "failed", "not-run"]), st.integers(0, 255), st.booleans(), st.booleans())
def test_what_a_line_says_never_turns_a_bad_end_into_a_pass(verdict: str, code: int, late: bool, memory: bool) -> None:
    end = ended(code, line("tensor", verdict), timed_out=late, out_of_memory=memory)
    single = only(judge(Job(payloads=("tensor",), device="cpu"), [end]))
    good = verdict == "passed" and code == 0 and not late
    assert (single.outcome is Outcome.PASSED) is good
    if verdict == "failed":
        assert single.outcome is Outcome.FAILED


def test_on_a_host_another_launchers_words_are_not_taken_for_ours(tmp_path: Path) -> None:
    host = OnHost(python=Path("/opt/my venv/bin/python3.11"), gpu_off=True, session=Session())
    around = {
        "SLURM_NNODES": "4",
        "RANK": "3",
        "PET_NNODES": "2",
        "HOME": "/root",
        "PATH": "/usr/bin",
        "HTTP_PROXY": "x",
    }
    node = only(nodes_of(replace(DDP, layout=Layout(nodes=1, nproc=2)), {}, 60, master="127.0.0.1"))  # type: ignore[arg-type]
    env = host.environment(node, tmp_path, around)  # type: ignore[arg-type]
    contract = contract_of(env)
    assert (contract.nnodes, contract.nproc_per_node, contract.master_addr) == (1, 2, "127.0.0.1")
    assert contract.master_port != 49875
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert (env["HOME"], env["HTTP_PROXY"]) == ("/root", "x")
    wrapper = Path(env["PATH"].split(":")[0]) / "python3"
    assert wrapper.read_text() == "#!/bin/sh\nexec '/opt/my venv/bin/python3.11' \"$@\"\n"


def test_every_combination_of_family_and_mode_says_something_of_every_device_it_has() -> None:
    for family, gpu, mode in itertools.product(("cpu", "cuda"), (NONE, CDI), ("auto", "off")):
        devices = {job.device for job in jobs_of(family, gpu, Options(gpu=mode))}
        assert devices == ({"cpu"} if family == "cpu" else {"cpu", "cuda"})
