"""Node 0 of a static job while the others check in, before anything starts.

It listens on MASTER_PORT until all have come, then frees the port for the ranks; the connections stay. So one port is
enough, a port that is taken is seen before torch is loaded, nodes that disagree, cannot start or are missing are
named, and a failure anywhere reaches every node at once.
"""

import socket
import time

from .checkin import Say, other_node_zero
from .contract import Contract
from .door import STRANGERS, Door, Guest
from .handshake import new_nonce
from .launch_error import Code, LaunchError
from .limits import allow_connections
from .log import named
from .messages import LONGEST_SENTENCE, Message
from .nodes import farewell
from .wire import Wire

_PAUSE = 0.25  # seconds between two looks at the clock
_ANNOUNCE_SECONDS = 1.0
_LINGER_SECONDS = 30.0  # to tell those that come late why the job cannot start
_BACKLOG = 4096


def gather(contract: Contract, commit: str, say: Say, trouble: LaunchError | None = None) -> dict[int, Wire]:
    """The others' connections when all have come. Raises LaunchError, on every node that came.

    ``trouble`` is why this node cannot take part itself: then the others are told, for a while.
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
    """A job on one node needs its port free as well. Raises LaunchError."""
    listen(contract).close()


def listen(contract: Contract) -> socket.socket:
    """Raises LaunchError when the port is taken."""
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
    """Who has come, and why the job cannot start, when it cannot."""

    def __init__(self, contract: Contract, commit: str, say: Say, door: Door) -> None:
        self._contract = contract
        self._commit = commit
        self._say = say
        self._door = door
        self._nodes: dict[int, Guest] = {}
        self._rivals: dict[int, Guest] = {}  # they claim a number that another has
        self._told: set[int] = set()
        self._deadline = time.monotonic() + contract.rendezvous_timeout
        self._announced = ("", float("-inf"))
        self._swept = 0.0
        self._error: LaunchError | None = None

    @property
    def over(self) -> bool:
        """Whether all have come, or all have been told why the job cannot start."""
        others = self._contract.nnodes - 1
        if self._error:
            return len(self._told) >= others or time.monotonic() >= self._deadline
        return len(self._nodes) == others and not self._rivals

    def step(self) -> None:
        """Wait a moment, and take in what has happened."""
        self._announce()
        for guest, hello in self._door.poll(_PAUSE):
            self._admit(guest, hello)
        if time.monotonic() - self._swept >= _PAUSE:
            self._sweep()
            self._swept = time.monotonic()

    def end(self) -> dict[int, Wire]:
        """Start the job everywhere, or raise why it cannot."""
        leaving = self._door.close()
        wires = {node: guest.wire for node, guest in self._nodes.items()}
        if self._error:
            farewell([*wires.values(), *(guest.wire for guest in self._rivals.values()), *leaving])
            raise self._error
        for wire in wires.values():
            wire.send("start")
        return wires

    def refuse(self, error: LaunchError) -> None:
        """The job cannot start: tell all that are here, and for a while those that come."""
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
            self._told.add(node)

    @property
    def _missing(self) -> list[int]:
        return [node for node in range(1, self._contract.nnodes) if node not in self._nodes]

    def _announce(self) -> None:
        """Who is missing: at once, and then not more often than anyone can read."""
        text, at = self._announced
        now = time.monotonic()
        if self._error or now - at < _ANNOUNCE_SECONDS:
            return
        missing = named("node", self._missing)
        if self._missing and missing != text:
            self._say(f"waiting for {missing}")
            for guest in self._nodes.values():
                guest.wire.send("waiting", missing=missing)
            self._announced = missing, now

    def _admit(self, guest: Guest, hello: Message) -> None:
        """One that has proven itself."""
        node = hello["node"]
        error = self._error or self._objection(hello)
        if error:
            self._tell(guest, node, error)
            self._door.dismiss(guest)
        elif node not in self._nodes:
            self._nodes[node] = guest
        elif node not in self._rivals:
            self._rivals[node] = guest  # one of the two may be dead without our knowing: see `_settle`
        else:
            self._door.drop(guest)  # it will try again

    def _objection(self, hello: Message) -> LaunchError | None:
        """Why this node cannot take part; when the job cannot start without it, all are told."""
        node, told = hello["node"], hello["trouble"]
        error = self._disagreement(hello)
        fatal = 0 < node < self._contract.nnodes and node not in self._nodes  # its place can only stay empty
        if not error and told:
            error, fatal = LaunchError(Code(told["code"]), f"node {node}: {told['sentence']}"), True
        elif not error and node == 0:
            error, fatal = _two(node), True
        if error and fatal:
            self.refuse(error)
        return error

    def _disagreement(self, hello: Message) -> LaunchError | None:
        ours = self._contract
        commit = "" if hello["trouble"] else self._commit  # one that found no job has no commit either
        for name, they_say, we_say in (
            ("NNODES", hello["nnodes"], ours.nnodes),
            ("NPROC_PER_NODE", hello["nproc"], ours.nproc_per_node),
            ("the job's commit", hello["commit"], commit),
        ):
            if they_say != we_say:
                return LaunchError(
                    Code.DISAGREE,
                    f"nodes disagree: {name} is {they_say or 'none'} on node {hello['node']} and {we_say or 'none'} "
                    "on node 0; start all with the same.",
                )
        return None

    def _sweep(self) -> None:
        """What time brings: pulses, nodes that are gone, the deadline."""
        self._door.expire()
        for node, guest in list(self._nodes.items()):
            guest.wire.keep_alive()
            guest.wire.flush()
            if guest.wire.gone and not self._error:
                self._door.drop(self._nodes.pop(node))  # it may come back: its container was started again
        for node, rival in list(self._rivals.items()):
            self._settle(node, rival)
        if time.monotonic() >= self._deadline and not self._error:
            self.refuse(self._incomplete())

    def _settle(self, node: int, rival: Guest) -> None:
        """Two say that they are one node: is the first still there?"""
        rival.wire.keep_alive()
        first = self._nodes.get(node)
        if rival.wire.gone:
            self._door.drop(self._rivals.pop(node))
        elif first is None:
            self._nodes[node] = self._rivals.pop(node)
        elif first.wire.heard > rival.since:
            self.refuse(_two(node))

    def _incomplete(self) -> LaunchError:
        missing = self._missing
        unproven = [node for node in missing if node in self._door.unproven]
        why = f" ({named('node', unproven)} came with another JOB_TOKEN, or none)" if unproven else ""
        return LaunchError(
            Code.NODES_MISSING,
            f"{named('node', missing)} of {self._contract.nnodes} did not come within RENDEZVOUS_TIMEOUT="
            f"{self._contract.rendezvous_timeout:g} s{why}: look at their logs, or raise it.",
        )


def _two(node: int) -> LaunchError:
    return LaunchError(Code.DISAGREE, f"two nodes say that they are node {node}: give each its own NODE_RANK.")
