"""Experiments on several nodes: their commands, and what all of them gave together."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.benchmark.cases import Fake, document_of, experiment, finished, printed
from torchbake.benchmark import nodes
from torchbake.benchmark.commands import Container, host_words
from torchbake.benchmark.expand import PlaceName, PlanCase
from torchbake.benchmark.field_types import PlanHost
from torchbake.benchmark.model import validate_plan
from torchbake.benchmark.nodes import NETWORK, run_nodes, script
from torchbake.benchmark.outcome import RunOutcome
from torchbake.benchmark.places import Finder
from torchbake.benchmark.records import Where
from torchbake.benchmark.run import PendingCase, lines_of
from torchbake.checks.smoke_run import Session
from torchbake.core.processes import ProcessResult
from torchbake.engine.gpu import GpuAccess
from torchbake.errors import PlanError

TWO = {"NNODES": "2", "MASTER_ADDR": "node0"}


def test_each_node_is_a_container_with_gpus_of_its_own() -> None:
    image = Container(image="a", family="cuda", gpu=GpuAccess(how="runtime", reason="yes"), folder=Path("/plans"))
    for node, devices in ((0, "0,1"), (1, "2,3")):
        words = image.words(experiment(gpus=2, nodes=2, env={"A": "b"}), node=node, network=NETWORK)
        assert {f"--network={NETWORK}", f"--network-alias=node{node}", "--env=A=b"} <= {*words}
        assert f'"device={devices}"' in words
        assert {f"--env={name}={value}" for name, value in {**TWO, "NODE_RANK": str(node)}.items()} <= {*words}
    alone = image.words(experiment())
    assert not [word for word in alone if "alias" in word or "NODES" in word]


def test_each_node_of_a_host_is_a_machine() -> None:
    host = PlanHost(ssh=("me@foo", "bar"), bench="/bench")
    first, second = (host_words(host, experiment(nodes=2), limit=9, folder=Path("/p"), node=node) for node in range(2))
    assert (first[3], second[3]) == ("me@foo", "bar")
    assert first[4].startswith("env NNODES=2 NODE_RANK=0 MASTER_ADDR=foo timeout 9 python3 /bench --model")
    assert "NODE_RANK=1 MASTER_ADDR=foo" in second[4]
    name = PlanHost(ssh=("foo", "bar"), address="10.0.0.1")
    assert "MASTER_ADDR=10.0.0.1" in host_words(name, experiment(nodes=2), limit=9, folder=Path("/p"))[4]
    assert (name.word, name.name) == ("foo, bar", "foo, bar")


def test_what_is_shown_starts_all_nodes_and_ends_with_the_first() -> None:
    assert script([["a", "b c"]]) == "a 'b c'"
    assert script([["a"], ["b"], ["c"]]) == "b &\nc &\na"
    create, *_, remove = script([["a"], ["b"]], network="n").splitlines()
    assert (create, remove) == ("docker network create --internal n", "docker network rm n")


def place(host: PlanHost, count: int) -> str:
    finder = Finder(engine=None, session=Session(), folder=Path("/p"), timeout=9)
    problem = finder.place(PlaceName(kind="host", word=host.word, name=host.name), host).problem(
        experiment(nodes=count)
    )
    return problem.reason if problem else ""


def test_a_place_with_too_few_machines_runs_nothing() -> None:
    assert place(PlanHost(ssh=("foo", "bar")), 2) == place(PlanHost(), 1) == ""
    assert place(PlanHost(ssh=("foo", "bar")), 3) == "foo, bar names 2 of 3 nodes"
    assert place(PlanHost(), 2) == "python3 names 1 of 2 nodes"


def all_of(monkeypatch: pytest.MonkeyPatch, *results: ProcessResult) -> RunOutcome:
    by_word = {str(number): each for number, each in enumerate(results)}

    def run(words: Sequence[str], *, env: Mapping[str, str], **_: Any) -> ProcessResult:
        return by_word[words[0]]

    monkeypatch.setattr(nodes, "run_to_end", run)
    return run_nodes([[word] for word in by_word], env={}, limit=1, stopping=threading.Event())


def test_a_result_is_one_of_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    good = all_of(monkeypatch, finished(printed(nodes=2)), finished())
    assert good.result
    old = all_of(monkeypatch, finished(printed(nodes=1)), finished(printed(nodes=1)))
    assert (old.result, old.reason) == (None, "Its `bench` measured 1 of 2 nodes: it is too old.")
    bad = all_of(monkeypatch, finished(printed(nodes=2)), finished(code=125, stderr="no such device"))
    assert (bad.result, bad.reason) == (None, "Node 1 ended with 125: no such device")
    failure = printed(status="failure", reason="A node is lost.", out_of_memory=True)
    both = all_of(monkeypatch, finished(failure, code=1), finished(code=137, stderr="killed"))
    assert (both.reason, both.out_of_memory) == ("A node is lost. Node 1 ended with 137: killed", True)


def test_places_that_share_a_machine_wait_for_each_other() -> None:
    def item(name: str, host: str) -> PendingCase:
        fake = Fake(name)
        fake.where = Where(kind="host", name=name, host=host)
        return PendingCase(case=PlanCase(experiment=experiment(), place=fake.place_name), place=fake, result=None)

    waiting = [item("a", "x"), item("b", "y"), item("c", "z"), item("d", "x, y"), item("e", "z")]
    waiting += [item("f", "y, w"), item("g", "x")]
    lines = [[each.case.place.name for each in line] for line in lines_of(waiting)]
    assert sorted(lines) == [["a", "b", "d", "f", "g"], ["c", "e"]]


def test_containers_of_several_nodes_have_a_network_of_their_own() -> None:
    text = "models: [a]\nimages: [cpu]\nnodes: [1, 2]\ndocker: {network: host}\n"
    with pytest.raises(PlanError, match=r"plan.yaml:4: docker: `network` has no use with `nodes`"):
        validate_plan(document_of(text))
