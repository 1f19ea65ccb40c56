"""Node 0 of a static job while the other nodes connect, before any rank starts.

Node 0 listens on MASTER_PORT until all nodes have connected, then frees the port for the ranks and keeps the
connections. So one port is enough, and a port in use is an error before torch is loaded. Nodes that disagree, cannot
start or are missing are named in the error, and a failure anywhere reaches every node at once.
"""

import socket
import time

from .checkin import Say, other_node_zero
from .contract import Contract
from .door import STRANGERS, Door, Guest
from .handshake import new_nonce
from .launch_error import Code, LaunchError
from .limits import allow_connections
from .log import join_numbers
from .messages import LONGEST_SENTENCE, Message
from .nodes import farewell
from .wire import Wire

_PAUSE = 0.25  # seconds between two looks at the clock
_ANNOUNCE_SECONDS = 1.0
_LINGER_SECONDS = 30.0  # to tell late nodes why the job cannot start
_BACKLOG = 4096


def gather(contract: Contract, commit: str, say: Say, trouble: LaunchError | None = None) -> dict[int, Wire]:
    """Wait for all nodes, and return their connections by node. Raises LaunchError, on every connected node.

    ``trouble`` is the reason why node 0 itself cannot take part: then the others are told for 30 s.
    """
    try:
        allow_connections(contract.nnodes, contract.nnodes + STRANGERS)
    except LaunchError as error:
        trouble = trouble or error
    with listen(contract) as listener:
        instance = new_nonce()
        door = Door(listener, instance, contract.job_token, contract.nnodes)
        gathering = Gathering(contract, commit, say, door)
        with other_node_zero(contract, commit, instance) as others:
            if trouble:
                gathering.refuse(trouble)
            while not gathering.over:
                gathering.step()
                if others:
                    gathering.refuse(others[0])
    return gathering.end()


def check_port(contract: Contract) -> None:
    """Check the port of a job on one node. Raises LaunchError if it is in use."""
    listen(contract).close()


def listen(contract: Contract) -> socket.socket:
    """Listen on the master's port. Raises LaunchError if it is in use."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        # reuse: the ranks bind the same port while our accepted connections live on.
        return socket.create_server(("", contract.master_port), family=family, dualstack_ipv6=dual, backlog=_BACKLOG)
    except OSError as error:
        raise LaunchError(
            Code.PORT_IN_USE,
            f"port {contract.master_port} cannot be opened on node 0 ({error.strerror}): "
            "end what holds it, or set MASTER_PORT to another on all nodes.",
        ) from None


class Gathering:
    """The nodes that have connected, and the error if the job cannot start."""

    def __init__(self, contract: Contract, commit: str, say: Say, door: Door) -> None:
        self._contract = contract
        self._commit = commit
        self._say = say
        self._door = door
        self._nodes: dict[int, Guest] = {}
        self._rivals: dict[int, Guest] = {}  # second connections with the number of a known node
        self._refused: set[int] = set()
        self._deadline = time.monotonic() + contract.rendezvous_timeout
        self._announced = ("", float("-inf"))
        self._last_sweep = 0.0
        self._error: LaunchError | None = None

    @property
    def over(self) -> bool:
        """Return True if all nodes have connected, or all have received the error."""
        others = self._contract.nnodes - 1
        if self._error:
            return len(self._refused) >= others or time.monotonic() >= self._deadline
        return len(self._nodes) == others and not self._rivals

    def step(self) -> None:
        """Wait for a quarter of a second, and process new connections and messages."""
        self._announce()
        for guest, hello in self._door.poll(_PAUSE):
            self._admit(guest, hello)
        if time.monotonic() - self._last_sweep >= _PAUSE:
            self._sweep()
            self._last_sweep = time.monotonic()

    def end(self) -> dict[int, Wire]:
        """Start the job on all nodes, or raise the error."""
        leaving = self._door.close()
        wires = {node: guest.wire for node, guest in self._nodes.items()}
        if self._error:
            farewell([*wires.values(), *(guest.wire for guest in self._rivals.values()), *leaving])
            raise self._error
        for wire in wires.values():
            wire.send("start")
        return wires

    def refuse(self, error: LaunchError) -> None:
        """Send the error to all connected nodes, and for 30 s to nodes that connect later."""
        if self._error:
            return
        self._error = error
        self._deadline = min(self._deadline, time.monotonic() + _LINGER_SECONDS)
        for node, guest in [*self._nodes.items(), *self._rivals.items()]:
            self._tell(guest, node, error)
        if not self.over:
            self._say(f"the job cannot start; nodes that check in are told why: {error.sentence}")

    def _tell(self, guest: Guest, node: int, error: LaunchError) -> None:
        guest.wire.send("refused", code=int(error.code), sentence=error.sentence[:LONGEST_SENTENCE])
        if 0 < node < self._contract.nnodes:
            self._refused.add(node)

    @property
    def _missing(self) -> list[int]:
        return [node for node in range(1, self._contract.nnodes) if node not in self._nodes]

    def _announce(self) -> None:
        """Log the missing nodes when they change, at most once a second."""
        text, at = self._announced
        now = time.monotonic()
        if self._error or now - at < _ANNOUNCE_SECONDS:
            return
        missing = join_numbers("node", self._missing)
        if self._missing and missing != text:
            self._say(f"waiting for {missing}")
            for guest in self._nodes.values():
                guest.wire.send("waiting", missing=missing)
            self._announced = missing, now

    def _admit(self, guest: Guest, hello: Message) -> None:
        node = hello["node"]
        error = self._error or self._objection(hello)
        if error:
            self._tell(guest, node, error)
            self._door.dismiss(guest)
        elif node not in self._nodes:
            self._nodes[node] = guest
        elif node not in self._rivals:
            self._rivals[node] = guest  # the first connection may be dead: see `_settle`
        else:
            self._door.drop(guest)  # it will try again

    def _objection(self, hello: Message) -> LaunchError | None:
        """Return the reason why this node cannot take part; refuse all nodes if the job cannot start without it."""
        node, trouble = hello["node"], hello["trouble"]
        error = self._disagreement(hello)
        fatal = 0 < node < self._contract.nnodes and node not in self._nodes  # no other node has its number
        if not error and trouble:
            error, fatal = LaunchError(Code(trouble["code"]), f"node {node}: {trouble['sentence']}"), True
        elif not error and node == 0:
            error, fatal = _two(node), True
        if error and fatal:
            self.refuse(error)
        return error

    def _disagreement(self, hello: Message) -> LaunchError | None:
        ours = self._contract
        commit = "" if hello["trouble"] else self._commit  # a node that found no job has no commit
        for name, other, own in (
            ("NNODES", hello["nnodes"], ours.nnodes),
            ("NPROC_PER_NODE", hello["nproc"], ours.nproc_per_node),
            ("the job's commit", hello["commit"], commit),
        ):
            if other != own:
                return LaunchError(
                    Code.DISAGREE,
                    f"nodes disagree: {name} is {other or 'none'} on node {hello['node']} and {own or 'none'} "
                    "on node 0; start all with the same.",
                )
        return None

    def _sweep(self) -> None:
        """Send heartbeats, drop dead connections, and check the deadline."""
        self._door.expire()
        for node, guest in list(self._nodes.items()):
            guest.wire.keep_alive()
            guest.wire.flush()
            if guest.wire.end_reason and not self._error:
                self._door.drop(self._nodes.pop(node))  # its container may start again and connect
        for node, rival in list(self._rivals.items()):
            self._settle(node, rival)
        if time.monotonic() >= self._deadline and not self._error:
            self.refuse(self._incomplete())

    def _settle(self, node: int, rival: Guest) -> None:
        """Decide between two connections with one node number: the first counts if it still sends heartbeats."""
        rival.wire.keep_alive()
        first = self._nodes.get(node)
        if rival.wire.end_reason:
            self._door.drop(self._rivals.pop(node))
        elif first is None:
            self._nodes[node] = self._rivals.pop(node)
        elif first.wire.last_receipt > rival.since:
            self.refuse(_two(node))

    def _incomplete(self) -> LaunchError:
        missing = self._missing
        unproven = [node for node in missing if node in self._door.unproven]
        why = f" ({join_numbers('node', unproven)} came with another JOB_TOKEN, or none)" if unproven else ""
        return LaunchError(
            Code.NODES_MISSING,
            f"{join_numbers('node', missing)} of {self._contract.nnodes} did not come within RENDEZVOUS_TIMEOUT="
            f"{self._contract.rendezvous_timeout:g} s{why}: look at their logs, or raise it.",
        )


def _two(node: int) -> LaunchError:
    return LaunchError(Code.DISAGREE, f"two nodes say that they are node {node}: give each its own NODE_RANK.")
