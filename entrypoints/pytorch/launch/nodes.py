"""The nodes of one job: they check in with node 0 before anything starts, and watch each other until the end.

Node 0 listens on MASTER_PORT until all have come, then frees the port for the ranks; the connections stay. So
one port is enough, a port that is taken or closed is seen before torch is loaded, nodes that disagree or are
missing are named, and a failure anywhere reaches every node at once.
"""

import contextlib
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .contract import Contract
from .failure import Failure
from .refusal import Code, Refusal
from .wire import Message, Wire

_PAUSE = 0.5  # seconds between two tries
_FAREWELL = 2.0  # seconds for the others to hang up as well
Say = Callable[[str], None]


@dataclass(kw_only=True)
class Nodes:
    """The connections of this node, by the other's node rank: on node 0 all others, elsewhere node 0."""

    contract: Contract
    wires: dict[int, Wire] = field(default_factory=dict)

    def poll(self, seconds: float) -> list[tuple[int, Message]]:
        """What the others have said, after waiting at most ``seconds`` for it."""
        open_wires = {node: wire for node, wire in self.wires.items() if not wire.gone}
        if open_wires:
            with contextlib.suppress(InterruptedError):
                select.select(list(open_wires.values()), [], [], seconds)
        else:
            time.sleep(seconds)
        said = [(node, message) for node, wire in open_wires.items() for message in wire.receive()]
        for wire in open_wires.values():
            wire.keep_alive()
        return said

    def lost(self) -> list[Failure]:
        """The nodes that are gone, each as a failure."""
        return [
            Failure(node=node, code=Code.NODE_LOST, why=f"node {node} is gone: {wire.gone}")
            for node, wire in self.wires.items()
            if wire.gone
        ]

    def tell(self, kind: str, **values: object) -> None:
        for wire in self.wires.values():
            if not wire.gone:
                wire.send(kind, **values)

    def close(self) -> None:
        """Hang up when the others have heard all: closing on unread bytes would take back what was sent."""
        for wire in self.wires.values():
            wire.finish()
        deadline = time.monotonic() + _FAREWELL
        while time.monotonic() < deadline and any(not wire.gone for wire in self.wires.values()):
            self.poll(0.05)
        for wire in self.wires.values():
            wire.close()


def gather(contract: Contract, commit: str, say: Say) -> Nodes:
    """Bring the nodes of a static job together; returns when all are there. Raises Refusal, on every node."""
    nodes = Nodes(contract=contract)
    if contract.nnodes == 1:
        _check_port(contract)
        return nodes
    deadline = time.monotonic() + contract.rendezvous_timeout
    if contract.is_master:
        _wait_for_all(nodes, commit, deadline, say)
    else:
        _check_in(nodes, commit, deadline, say)
    return nodes


def wait_for_master(contract: Contract, say: Say) -> None:
    """What an elastic job's workers wait for: the master's name, then its port."""
    deadline = time.monotonic() + contract.rendezvous_timeout
    connect(contract, resolve(contract, deadline, say), deadline, say).close()


def _check_port(contract: Contract) -> None:
    """A job on one node needs its port free as well."""
    _listen(contract).close()


def _listen(contract: Contract) -> socket.socket:
    """Raises Refusal when the port is taken."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        # reuse: the ranks bind the same port while our accepted connections live on.
        return socket.create_server(("", contract.master_port), family=family, dualstack_ipv6=dual, backlog=1024)
    except OSError as error:
        raise Refusal(
            Code.PORT_IN_USE,
            f"port {contract.master_port} cannot be opened on node 0 ({error.strerror}): "
            "end what holds it, or set MASTER_PORT to another on all nodes.",
        ) from None


def _wait_for_all(nodes: Nodes, commit: str, deadline: float, say: Say) -> None:
    contract = nodes.contract
    with _listen(contract) as listener:
        listener.settimeout(_PAUSE)
        strangers: list[Wire] = []
        while missing := sorted(set(range(1, contract.nnodes)) - set(nodes.wires)):
            say(f"waiting for {_nodes(missing)}")
            if time.monotonic() > deadline:
                raise _tell_all(nodes, strangers, _missing(contract, missing))
            with contextlib.suppress(TimeoutError):
                strangers.append(Wire(listener.accept()[0]))
            for wire in strangers:
                for message in wire.receive():
                    refusal = _disagreement(nodes, message, commit)
                    if refusal:
                        raise _tell_all(nodes, strangers, refusal)
                    nodes.wires[message["node"]] = wire
            strangers = [wire for wire in strangers if not wire.gone and wire not in nodes.wires.values()]
            nodes.poll(0)
            for node in [node for node, wire in nodes.wires.items() if wire.gone]:
                nodes.wires.pop(node)  # it may come back: its container was started again
        for wire in strangers:
            wire.close()
    nodes.tell("start")


def _tell_all(nodes: Nodes, strangers: list[Wire], refusal: Refusal) -> Refusal:
    for wire in [*nodes.wires.values(), *strangers]:
        wire.send("refused", code=int(refusal.code), sentence=refusal.sentence)
    return refusal


def _missing(contract: Contract, missing: list[int]) -> Refusal:
    return Refusal(
        Code.NODES_MISSING,
        f"{_nodes(missing)} of {contract.nnodes} did not come within RENDEZVOUS_TIMEOUT="
        f"{contract.rendezvous_timeout:g} s: look at their logs, or raise it.",
    )


def _disagreement(nodes: Nodes, hello: Message, commit: str) -> Refusal | None:
    contract, node = nodes.contract, hello.get("node")
    for name, theirs, ours in (
        ("NNODES", hello.get("nnodes"), contract.nnodes),
        ("NPROC_PER_NODE", hello.get("nproc"), contract.nproc_per_node),
        ("the job's commit", hello.get("commit"), commit),
    ):
        if theirs != ours:
            return Refusal(
                Code.DISAGREE,
                f"nodes disagree: {name} is {theirs or 'none'} on node {node} and {ours or 'none'} on node 0; "
                "start all with the same.",
            )
    if node in nodes.wires:
        return Refusal(Code.DISAGREE, f"two nodes say that they are node {node}: give each its own NODE_RANK.")
    return None


def _check_in(nodes: Nodes, commit: str, deadline: float, say: Say) -> None:
    contract = nodes.contract
    addresses = resolve(contract, deadline, say)
    while True:
        wire = Wire(connect(contract, addresses, deadline, say))
        wire.send(
            "hello", node=contract.node_rank, nnodes=contract.nnodes, nproc=contract.nproc_per_node, commit=commit
        )
        say("waiting for the other nodes")
        nodes.wires = {0: wire}
        # Node 0 has the same deadline and names who is missing: leave it the time to say so.
        while not wire.gone and time.monotonic() < deadline + 2 * _PAUSE:
            for _, message in nodes.poll(_PAUSE):
                if message["kind"] == "start":
                    return
                if message["kind"] == "refused":
                    raise Refusal(Code(message["code"]), message["sentence"])
        if time.monotonic() >= deadline:
            raise Refusal(
                Code.NO_PORT,
                f"{contract.master_addr}:{contract.master_port} answered, but did not start the job within "
                f"RENDEZVOUS_TIMEOUT={contract.rendezvous_timeout:g} s ({wire.gone or 'it said nothing'}): "
                "does node 0 start it by `run` too?",
            )
        wire.close()
        time.sleep(_PAUSE)


def resolve(contract: Contract, deadline: float, say: Say) -> list[str]:
    """Phase one: the addresses behind the master's name. Raises Refusal (NO_NAME) at the deadline."""
    while True:
        try:
            found = socket.getaddrinfo(contract.master_addr, contract.master_port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(entry[4][0]) for entry in found))
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
        if time.monotonic() >= deadline:
            raise Refusal(
                Code.NO_NAME,
                f"the master's name {contract.master_addr} did not resolve within RENDEZVOUS_TIMEOUT="
                f"{contract.rendezvous_timeout:g} s ({reason}): correct MASTER_ADDR, or look whether node 0 runs.",
            )
        say(f"waiting for the name {contract.master_addr}")
        time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))


def connect(contract: Contract, addresses: list[str], deadline: float, say: Say) -> socket.socket:
    """Phase two: a connection to the master's port. Raises Refusal (NO_PORT) at the deadline."""
    reason = ""
    while True:
        for address in addresses:
            left = max(0.1, deadline - time.monotonic())
            try:
                return socket.create_connection((address, contract.master_port), timeout=min(5.0, left))
            except OSError as error:
                reason = error.strerror or str(error)
        if time.monotonic() >= deadline:
            raise Refusal(
                Code.NO_PORT,
                f"{contract.master_addr} resolved to {', '.join(addresses)}, but port {contract.master_port} did not "
                f"answer within RENDEZVOUS_TIMEOUT={contract.rendezvous_timeout:g} s ({reason}): "
                "is node 0 running, and is the port open between the nodes?",
            )
        say(f"waiting for port {contract.master_port} of {contract.master_addr}")
        time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))
        # The name may by now lead to another container.
        with contextlib.suppress(OSError, UnicodeError):
            addresses = resolve(contract, 0.0, say)


def _nodes(ranks: list[int]) -> str:
    word = "node" if len(ranks) == 1 else "nodes"
    return f"{word} {', '.join(map(str, ranks))}"
