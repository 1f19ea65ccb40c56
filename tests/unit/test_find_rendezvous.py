"""The rendezvous address of an elastic job, by the addresses of the master's name."""

import socket
from collections.abc import Mapping

import pytest

from entrypoints.pytorch.launch import checkin
from entrypoints.pytorch.launch.checkin import find_rendezvous
from entrypoints.pytorch.launch.contract import Contract
from entrypoints.pytorch.launch.launch_error import Code, LaunchError
from entrypoints.pytorch.launch.meeting import meet

OWN, MISSING, OTHER = "10.0.0.1", "10.0.0.2", "10.0.0.3"


class Answer:
    """A connection, as far as is asked of it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def getpeername(self) -> tuple[str, int]:
        return self.address, 49875


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The name's addresses, for each resolution; the last addresses stay. This node is OWN, and only OTHER answers."""
    looks: list[list[str]] = []

    def answer(place: tuple[str, int], timeout: float) -> Answer:
        if place[0] != OTHER:
            raise OSError("timed out")
        return Answer(place[0])

    monkeypatch.setattr(checkin, "_addresses", lambda _: looks.pop(0) if len(looks) > 1 else looks[0])
    monkeypatch.setattr(checkin, "_is_here", lambda address: address == OWN)
    monkeypatch.setattr(checkin, "_PAUSE", 0)
    monkeypatch.setattr(socket, "create_connection", answer)
    return looks


def elastic(node_rank: int = 0, *, timeout: float = 1, conf: Mapping[str, str] | None = None) -> Contract:
    return Contract(
        mode="distributed", nnodes=2, elastic=(1, 2), node_rank=node_rank, master_addr="node0",
        rendezvous_timeout=timeout, rdzv_conf=conf or {},
    )  # fmt: skip


def find(contract: Contract) -> str:
    return find_rendezvous(contract, lambda _: None)


@pytest.mark.parametrize("node_rank", [0, 1])
def test_it_is_the_address_that_answers(name: list[list[str]], node_rank: int) -> None:
    """Node 0 as well, since launchers that number no nodes leave 0 to all."""
    name += [[MISSING, OTHER]]
    assert find(elastic(node_rank)) == OTHER


@pytest.mark.parametrize(("node_rank", "right"), [(0, OWN), (1, OTHER)])
def test_the_name_is_looked_up_anew_until_it_leads_there(name: list[list[str]], node_rank: int, right: str) -> None:
    name += [[MISSING], [MISSING], [MISSING, right]]
    assert find(elastic(node_rank)) == right


def test_the_node_that_holds_it_waits_for_no_port(name: list[list[str]]) -> None:
    name += [[MISSING, OTHER, OWN]]
    assert find(elastic()) == OWN


def test_another_node_on_the_same_machine_waits_for_the_port(name: list[list[str]]) -> None:
    name += [[OWN], [OWN, OTHER]]
    assert find(elastic(1)) == OTHER


def test_who_says_which_node_holds_it_is_trusted(name: list[list[str]]) -> None:
    name += [[MISSING]]
    assert find(elastic(conf={"is_host": "1"})) == "node0"


def test_where_nothing_answers_the_addresses_are_named(name: list[list[str]]) -> None:
    name += [[MISSING]]
    with pytest.raises(LaunchError, match=f"node0 resolved to {MISSING}, but port 49875 did not answer") as refused:
        find(elastic(timeout=0.01))
    assert refused.value.code == Code.NO_PORT


def test_the_nodes_have_no_connections_of_their_own(name: list[list[str]]) -> None:
    name += [[OTHER]]
    nodes = meet(elastic(1), "", lambda _: None)
    assert (nodes.others, nodes.master_addr) == (frozenset(), OTHER)
    nodes.close()
