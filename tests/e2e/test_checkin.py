"""Node 0 is found by a name that leads to others as well.

Over this host's loopback, without an engine; then three containers, with torch.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import docker
import pytest

from entrypoints.pytorch.launch import checkin
from entrypoints.pytorch.launch.checkin import check_in
from entrypoints.pytorch.launch.contract import Contract
from entrypoints.pytorch.launch.door import Door
from entrypoints.pytorch.launch.handshake import new_nonce
from entrypoints.pytorch.launch.nodes import NodeConnections
from entrypoints.pytorch.launch.wire import Wire
from tests.e2e.conftest import CPU
from tests.e2e.nodes import new_job

pytestmark = pytest.mark.entrypoints

OTHER, NODE_ZERO = "127.0.0.2", "127.0.0.3"
NETWORK = "10.249.49"
Listen = Callable[[str], socket.socket]
# A listener whose queue is full: the kernel drops what comes, as what comes to an address that is gone.
SILENT = """
import socket, time
listener = socket.create_server(("", 49875), backlog=0)
first = socket.create_connection(("127.0.0.1", 49875))
time.sleep(600)
"""


@pytest.fixture
def listen(port: int) -> Iterator[Listen]:
    with ExitStack() as stack:
        yield lambda address: stack.enter_context(socket.create_server((address, port), backlog=0))


def find(monkeypatch: pytest.MonkeyPatch, port: int, listener: socket.socket) -> tuple[Wire, Wire]:
    """Node 1's wire, to where the name led it of the two, and node 0's."""
    monkeypatch.setattr(checkin, "_addresses", lambda _: [OTHER, NODE_ZERO])
    contract = Contract(
        mode="distributed", nnodes=2, node_rank=1, master_addr="node0", master_port=port, rendezvous_timeout=20
    )
    wires: list[Wire] = []

    def admit() -> None:
        door = Door(listener, new_nonce(), "", 2)
        while not (came := door.poll(1)):
            pass
        wires.append(came[0][0].wire)
        wires[0].send("start")

    node_zero = threading.Thread(target=admit, daemon=True)
    node_zero.start()
    wire = check_in(contract, "", lambda _: None)
    node_zero.join()
    return wire, wires[0]


def test_a_foreign_server_at_an_address_hides_no_other_node(
    monkeypatch: pytest.MonkeyPatch, port: int, listen: Listen
) -> None:
    other = listen(OTHER)

    def greet() -> None:
        while True:
            other.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    threading.Thread(target=greet, daemon=True).start()
    wires = find(monkeypatch, port, listen(NODE_ZERO))
    assert wires[0].peer == NODE_ZERO
    for wire in wires:
        wire.close()


def test_an_address_without_an_answer_costs_little_time(
    monkeypatch: pytest.MonkeyPatch, port: int, listen: Listen
) -> None:
    listen(OTHER)
    with socket.create_connection((OTHER, port)):  # its queue is full: the kernel drops what comes
        began = time.monotonic()
        wires = find(monkeypatch, port, listen(NODE_ZERO))
        assert wires[0].peer == NODE_ZERO
        assert time.monotonic() - began < 5  # as long as it was tried before it was known to be silent
    for wire in wires:
        wire.close()


def test_ranks_go_to_the_address_at_which_node_0_was_found(
    monkeypatch: pytest.MonkeyPatch, port: int, listen: Listen
) -> None:
    for node, wire in enumerate(find(monkeypatch, port, listen(NODE_ZERO))):
        nodes = NodeConnections({node: wire})
        assert nodes.master_addr == NODE_ZERO
        nodes.close()
    assert NodeConnections().master_addr == ""


def test_torch_waits_for_no_other(engine: docker.DockerClient, built: dict[str, dict[str, Any]]) -> None:
    """It tries a name's addresses one by one, each for as long as the kernel does: as a rule the nearest first."""
    settings = {"NNODES": 3, "MASTER_ADDR": "node0", "RENDEZVOUS_TIMEOUT": 120, "GROUP_TIMEOUT": 30}
    with new_job(engine, built[CPU]["ref"], 3, settings, subnet=f"{NETWORK}.0/24") as job:
        silent = job.start(3, "-c", SILENT, program="python", names=("node0",), ip=f"{NETWORK}.64")
        for node, last in enumerate((2, 65, 66)):
            job.start(node, "/job/fit.py", ip=f"{NETWORK}.{last}")
        job.containers.remove(silent)
        try:
            assert job.ends() == [0, 0, 0], [each.logs().decode() for each in job.containers]
        finally:
            job.containers.append(silent)
