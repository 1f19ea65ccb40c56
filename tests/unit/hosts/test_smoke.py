"""Each host runs what needs no others, and all of them together the rest: a node each, on GPUs too."""

from collections.abc import Sequence
from typing import Any

import pytest

from torchbake.checks.reports import Tested
from torchbake.checks.smoke_jobs import Job, Options
from torchbake.checks.smoke_run import Look, Session
from torchbake.checks.verdict import Outcome
from torchbake.core.problem import Problem
from torchbake.engine.containers import Node
from torchbake.engine.runner import Ended
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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: Facts | Problem) -> None:
        self.jobs: list[tuple[str, str, Sequence[Node]]] = []
        said = dict(zip((host.name for host in HOSTS), found, strict=True))
        monkeypatch.setattr(smoke, "look", lambda host, _: said[host.name])
        monkeypatch.setattr(OverSsh, "run", self.run)

    def run(self, job: Job, nodes: Sequence[Node], limit: int, on_look: Look) -> tuple[Ended, ...]:
        self.jobs.append(("", job.check_ids[0], nodes))
        return tuple(Ended(name="x", code=1) for _ in nodes)

    def results(self, **options: Any) -> list[Tested]:
        chosen = options_for(Options(**options), len(HOSTS))
        return SmokeOfHosts(hosts=HOSTS, expected={}, options=chosen, session=Session()).run()

    @property
    def ids(self) -> list[str]:
        return [check for _, check, _ in self.jobs]


def test_all_hosts_are_the_nodes_of_one_job_whose_master_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, facts(), facts(address="10.0.0.2"))
    assert [tested.name for tested in ran.results()] == ["a", "b", "all together"]
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


def test_payloads_that_need_others_are_no_failure_of_a_host_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, facts(), facts())
    assert [tested.name for tested in ran.results(payloads=("ddp",))] == ["all together"]


def test_hosts_with_other_torches_meet_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, facts(CUDA, "/dev/nvidia0"), facts(CPU))
    assert not [check for check in ran.results()[-1].checks if "nccl" in check.id]


def test_a_host_that_cannot_take_part_is_named_and_the_others_are_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Ran(monkeypatch, Problem(reason="no route"), facts())
    found = {tested.name: tested for tested in ran.results()}
    assert found["a"].problem
    assert found["all together"].problem
    assert found["all together"].problem.reason == "these hosts cannot take part: a"
    assert ran.ids == ["smoke.tensor[cpu]"]
