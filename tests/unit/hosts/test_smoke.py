"""Each host runs what needs no others, and all of them together the rest: a node each, on GPUs too."""

from collections.abc import Sequence
from typing import Any

import pytest

from torchbake.checks.reports import ImageResult
from torchbake.checks.smoke_jobs import SmokeJob, SmokeOptions
from torchbake.checks.smoke_run import Look, Session
from torchbake.checks.verdict import Outcome
from torchbake.core.problem import Problem
from torchbake.engine.containers import ContainerNode
from torchbake.engine.runner import ContainerEnd
from torchbake.hosts import smoke
from torchbake.hosts.over_ssh import Facts, OverSsh
from torchbake.hosts.smoke import SmokeOfHosts, options_for
from torchbake.hosts.ssh import SshHost

CPU, CUDA = "cuda: Optional[str] = None\n", "cuda: Optional[str] = '12.8'\n"
HOSTS = tuple(SshHost(name=name, address=name) for name in "ab")


def facts(torch: str = CPU, *gpus: str, address: str = "10.0.0.1") -> Facts:
    return Facts(python="3.11", torch=torch, address=address, port=4711, gpus=gpus)


class Ran:
    """Return the hosts, the first ID of the checks, and the nodes of each job that ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *matches: Facts | Problem) -> None:
        self.jobs: list[tuple[str, str, Sequence[ContainerNode]]] = []
        lines = dict(zip((host.name for host in HOSTS), matches, strict=True))
        monkeypatch.setattr(smoke, "look", lambda host, _: lines[host.name])
        monkeypatch.setattr(OverSsh, "run", self.run)

    def run(self, job: SmokeJob, nodes: Sequence[ContainerNode], limit: int, on_look: Look) -> tuple[ContainerEnd, ...]:
        self.jobs.append(("", job.check_ids[0], nodes))
        return tuple(ContainerEnd(name="x", code=1) for _ in nodes)

    def results(self, **options: Any) -> list[ImageResult]:
        choice = options_for(SmokeOptions(**options), len(HOSTS))
        return SmokeOfHosts(hosts=HOSTS, expected={}, options=choice, session=Session()).run()

    @property
    def ids(self) -> list[str]:
        return [check for _, check, _ in self.jobs]


def test_all_hosts_are_nodes_of_one_job_with_the_first_as_master(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, facts(), facts(address="10.0.0.2"))
    assert [result.name for result in ran.results()] == ["a", "b", "all together"]
    assert sorted(ran.ids)[:1] == ["smoke.ddp[gloo,2x2,workers-first]"]
    nodes = next(nodes for _, check, nodes in ran.jobs if check.startswith("smoke.ddp"))
    assert [node.env["NODE_RANK"] for node in nodes] == ["0", "1"]
    assert {node.env["MASTER_ADDR"] for node in nodes} == {"10.0.0.1"}
    assert ran.ids.count("smoke.tensor[cpu]") == 2


def test_on_gpus_a_job_spans_the_hosts_where_each_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, facts(CUDA, "/dev/nvidia0"), facts(CUDA, "/dev/nvidia0"))
    ran.results()
    assert "smoke.nccl[nccl,2xauto,workers-first]" in ran.ids
    without = Ran(monkeypatch, facts(CUDA, "/dev/nvidia0"), facts(CUDA))
    checks = without.results()[-1].checks
    assert {check.outcome for check in checks if "[nccl," in check.id} == {Outcome.NOT_RUN}
    assert "b has no /dev/nvidia0" in next(check.reason for check in checks if "[nccl," in check.id)


def test_payloads_that_need_others_do_not_fail_a_single_host(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, facts(), facts())
    assert [result.name for result in ran.results(payloads=("ddp",))] == ["all together"]


def test_hosts_with_other_torches_meet_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, facts(CUDA, "/dev/nvidia0"), facts(CPU))
    assert not [check for check in ran.results()[-1].checks if "nccl" in check.id]


def test_a_host_that_cannot_take_part_is_named_and_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, Problem(reason="no route"), facts())
    results = {result.name: result for result in ran.results()}
    assert results["a"].problem
    assert results["all together"].problem
    assert results["all together"].problem.reason == "these hosts cannot take part: a"
    assert ran.ids == ["smoke.tensor[cpu]"]
