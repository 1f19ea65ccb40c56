"""Jobs of smoke tests, and the commands and variables of their containers."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.pytorch.launch.contract import contract_of
from entrypoints.pytorch.payloads import cli as payloads
from tests.images.checks import as_markdown, smoke_checks
from torchbake.checks.smoke_jobs import PAYLOADS, RankLayout, SmokeJob, SmokeOptions, jobs_of, nodes_of
from torchbake.checks.smoke_run import OnHost, Session
from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.core.problem import unknown
from torchbake.engine.gpu import GpuAccess
from torchbake.oci.labels import versions_in

NONE = GpuAccess(how="none", reason="the engine has no nvidia runtime")
CDI = GpuAccess(how="cdi", reason="/etc/cdi/nvidia.yaml describes it")
DDP = SmokeJob(payloads=("ddp",), device="cpu", layout=RankLayout(nodes=2, nproc=2, order="workers-first"))


def ids(family: str, gpu: GpuAccess = NONE, **options: Any) -> list[str]:
    return [name for job in jobs_of(family, gpu, SmokeOptions(**options)) for name in job.check_ids]


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
def test_without_a_gpu_only_what_needs_one_is_not_run(mode: str, gpu: GpuAccess, reason: str) -> None:
    jobs = jobs_of("cuda", gpu, SmokeOptions(gpu=mode))
    assert {job.problem for job in jobs if job.device == "cuda"} == {unknown(reason)}
    assert {job.problem for job in jobs if job.device == "cpu"} == {None}
    results = [result for job in jobs if job.problem for result in job.not_started()]
    assert {(result.outcome, result.reason) for result in results} == {(Outcome.NOT_RUN, reason)}


def test_a_required_gpu_that_is_missing_fails_each_gpu_check() -> None:
    jobs = jobs_of("cuda", NONE, SmokeOptions(gpu="require"))
    results = [result for job in jobs if job.problem for result in job.not_started()]
    assert {result.id for result in results} == set(ids("cuda")) - set(ids("cpu"))
    reason = "a GPU is required (--gpu require), but the engine has no nvidia runtime"
    assert {(result.outcome, result.reason) for result in results} == {(Outcome.FAILED, reason)}
    # A build for the CPU needs none, whatever is required of the others.
    assert not any(job.problem for job in jobs_of("cpu", NONE, SmokeOptions(gpu="require")))


def test_with_a_gpu_all_is_run_and_only_the_jobs_on_cuda_get_it() -> None:
    jobs = jobs_of("cuda", CDI, SmokeOptions())
    assert [job.problem for job in jobs] == [None] * len(jobs)
    assert all(job.given_gpu == (job.device == "cuda") for job in jobs)


def test_nccl_selected_by_name_is_reported_on_a_cpu_image() -> None:
    job = only(jobs_of("cpu", NONE, SmokeOptions(payloads=("nccl",))))  # type: ignore[arg-type]
    assert isinstance(job, SmokeJob)
    assert job.problem
    assert "CPU build" in job.problem.reason


def test_layouts() -> None:
    assert ids("cpu", payloads=("ddp",), nodes=3, nproc=1, orders=("master-first",)) == [
        "smoke.ddp[gloo,3x1,master-first]"
    ]
    assert ids("cpu", payloads=("ddp",), nodes=1) == ["smoke.ddp[gloo,1x2]"]
    # The single container already runs the examples with one rank.
    assert ids("cpu", payloads=("ddp", "examples"), nodes=1, nproc=1) == ["smoke.examples[cpu]", "smoke.ddp[gloo,1x1]"]


@given(
    st.sampled_from(["cpu", "cuda"]),
    st.sampled_from([NONE, CDI]),
    st.builds(
        SmokeOptions,
        gpu=st.sampled_from(["auto", "off"]),
        nodes=st.integers(1, 4),
        nproc=st.integers(1, 4),
        payloads=st.sets(st.sampled_from(PAYLOADS), min_size=1).map(
            lambda some: tuple(p for p in PAYLOADS if p in some)
        ),
        timeout=st.integers(1, 900),
    ),
)
def test_ids_are_unique_and_every_selected_payload_is_there(family: str, gpu: GpuAccess, options: SmokeOptions) -> None:
    jobs = jobs_of(family, gpu, options)
    names = [name for job in jobs for name in job.check_ids]
    assert len(names) == len(set(names))
    selected = set(options.payloads) - ({"nccl"} if options.payloads == PAYLOADS and family == "cpu" else set())
    assert {payload for job in jobs for payload in job.payloads} == selected


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 900))
def test_every_node_is_told_the_same_job_and_a_rank_of_its_own(nodes: int, nproc: int, timeout: int) -> None:
    job = replace(DDP, layout=RankLayout(nodes=nodes, nproc=nproc))
    containers = nodes_of(job, {}, timeout)
    contracts = [contract_of(node.env) for node in containers]
    ranks = [contract.first_rank + local for contract in contracts for local in range(contract.nproc_per_node)]
    assert sorted(ranks) == list(range(nodes * nproc))
    assert len({(c.mode, c.world_size, c.master_addr, c.master_port, c.group_timeout) for c in contracts}) == 1
    assert contracts[0].distributed
    assert len({node.command for node in containers}) == 1
    words = containers[0].command
    assert words[:3] == ("/opt/torchbake/run", "/opt/torchbake/smoke", "ddp")
    assert payloads.parse(list(words[2:])).timeout == timeout
    # The limit of the container is the last one, so that a more specific message comes first.
    assert contracts[0].rendezvous_timeout < job.limit(timeout)
    assert timeout < job.limit(timeout)


def test_expected_versions_reach_the_payload_that_compares_them() -> None:
    labels = {"org.torchbake.torch": "2.13.0+cpu", "org.torchbake.python": "3.11", "org.torchbake.id": "x"}
    expected = versions_in(labels)
    assert expected == {"torch": "2.13.0+cpu", "cuda": None, "cudnn": None, "nccl": None, "python": "3.11"}
    words = only(nodes_of(SmokeJob(payloads=("tensor", "versions"), device="cpu"), expected, 60)).command  # type: ignore[arg-type,attr-defined]
    parsed = payloads.parse(list(words[1:]))
    assert parsed.names == ("tensor", "versions")
    assert parsed.options.expected == expected


def test_an_image_of_somebody_else_promises_nothing() -> None:
    assert versions_in({"org.opencontainers.image.version": "1"}) == {}


def test_variables_of_another_launcher_on_a_host_are_ignored(tmp_path: Path) -> None:
    host = OnHost(python=Path("/opt/my venv/bin/python3.11"), gpu_off=True, session=Session())
    around = {
        "SLURM_NNODES": "4",
        "RANK": "3",
        "PET_NNODES": "2",
        "HOME": "/root",
        "PATH": "/usr/bin",
        "HTTP_PROXY": "x",
    }
    node = only(nodes_of(replace(DDP, layout=RankLayout(nodes=1, nproc=2)), {}, 60, master="127.0.0.1"))  # type: ignore[arg-type]
    env = host.environment(node, tmp_path, around)  # type: ignore[arg-type]
    contract = contract_of(env)
    assert (contract.nnodes, contract.nproc_per_node, contract.master_addr) == (1, 2, "127.0.0.1")
    assert contract.master_port != 49875
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert (env["HOME"], env["HTTP_PROXY"]) == ("/root", "x")
    wrapper = Path(env["PATH"].split(":")[0]) / "python3"
    assert wrapper.read_text() == "#!/bin/sh\nexec '/opt/my venv/bin/python3.11' \"$@\"\n"


def test_each_family_and_mode_has_a_result_for_each_device() -> None:
    for family, gpu, mode in itertools.product(("cpu", "cuda"), (NONE, CDI), ("auto", "off")):
        devices = {job.device for job in jobs_of(family, gpu, SmokeOptions(gpu=mode))}
        assert devices == ({"cpu"} if family == "cpu" else {"cpu", "cuda"})
