"""The connections between the nodes of a running job: they watch each other until the end.

Node 0 has one to each other node, and each other node has one to node 0.
"""

import selectors
import time
from collections.abc import Iterable, Mapping

from .alarm import Alarm
from .failure import Failure
from .launch_error import Code
from .messages import Message
from .wire import FAREWELL_SECONDS, Wire

_SWEEP_SECONDS = 0.5  # between two looks at who must be told, or has not told, that a node lives


class Nodes:
    """This node's connections, by the other's node rank."""

    def __init__(self, wires: Mapping[int, Wire] | None = None, *, master_addr: str = "") -> None:
        self._wires = dict(wires or {})
        self._master_addr = master_addr
        self._selector = selectors.DefaultSelector()
        self._gone: list[Failure] = []
        self._swept = 0.0
        self._early: list[tuple[int, Message]] = []
        for node, wire in self._wires.items():
            self._selector.register(wire, selectors.EVENT_READ, node)
            self._early += [(node, message) for message in wire.rest()]

    @property
    def others(self) -> frozenset[int]:
        """The nodes that this one has, or had, a connection to."""
        return frozenset(self._wires)

    @property
    def master_addr(self) -> str:
        """Where node 0 has been found, on node 0 by another; empty where nothing had to be found."""
        for node, wire in self._wires.items():
            return wire.own if node else wire.peer
        return self._master_addr

    def heed(self, alarm: Alarm) -> None:
        """Let `poll` end when the alarm rings."""
        self._selector.register(alarm, selectors.EVENT_READ)

    def poll(self, seconds: float) -> list[tuple[int, Message]]:
        """What the others have said, after waiting at most ``seconds`` for it, or until an alarm."""
        said, self._early = self._early, []
        deadline, rung = time.monotonic() + seconds, False
        while not said and not rung and (left := deadline - time.monotonic()) > 0:
            self._sweep()
            for key, events in self._selector.select(min(left, _SWEEP_SECONDS)):
                if isinstance(key.fileobj, Alarm):
                    rung = True
                    key.fileobj.quiet()
                    continue
                wire = self._wires[key.data]
                if events & selectors.EVENT_WRITE:
                    wire.flush()
                said += [(key.data, message) for message in wire.receive()]
                self._watch(key.data)
        return said

    def _sweep(self) -> None:
        if time.monotonic() - self._swept < _SWEEP_SECONDS:
            return
        self._swept = time.monotonic()
        for node, wire in self._wires.items():
            wire.keep_alive()
            self._watch(node)

    def _watch(self, node: int) -> None:
        """Wait for what a connection needs: to be read, to be written to, or nothing more when it is gone."""
        wire = self._wires[node]
        key = self._selector.get_map().get(wire.fileno())
        if key is None:
            return
        if wire.gone:
            self._selector.unregister(wire)
            self._gone.append(Failure(node=node, code=Code.NODE_LOST, why=f"node {node} is gone: {wire.gone}"))
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.unsent else 0)
        if wanted != key.events:
            self._selector.modify(wire, wanted, node)

    def lost(self) -> list[Failure]:
        """The nodes that are gone, each as a failure."""
        return self._gone

    def tell(self, kind: str, **values: object) -> None:
        """Tell all others."""
        for node, wire in self._wires.items():
            wire.send(kind, **values)
            self._watch(node)

    def close(self) -> None:
        """Hang up when the others have heard all."""
        farewell(self._wires.values())
        self._selector.close()


def farewell(wires: Iterable[Wire]) -> None:
    """Say no more, and wait a moment for the others to hang up: closing on unread bytes takes back what was sent."""
    with selectors.DefaultSelector() as selector:
        left = {wire for wire in wires if not wire.gone}
        for wire in left:
            selector.register(wire, selectors.EVENT_READ)
            wire.finish()
        deadline = time.monotonic() + FAREWELL_SECONDS
        while left and time.monotonic() < deadline:
            for key, _ in selector.select(0.05):
                assert isinstance(key.fileobj, Wire)
                key.fileobj.receive()
            for wire in [wire for wire in left if wire.gone]:
                selector.unregister(wire)
                left.remove(wire)
            for wire in left:
                wire.flush()
    for wire in wires:
        wire.close()
