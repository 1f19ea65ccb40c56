"""The connections between the nodes of a running job, by which they watch each other until the end.

Node 0 has a connection to each other node, and each other node has a connection to node 0.
"""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Iterable, Mapping
from types import FrameType, TracebackType

from .failure import JobFailure
from .launch_error import Code
from .messages import Message
from .wire import FAREWELL_SECONDS, Wire

_SWEEP_SECONDS = 0.5  # between two rounds in which heartbeats are sent and checked


class Alarm:
    """A file for a selector that becomes readable when a child process ends, or another signal has been handled."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = signal.signal(signal.SIGCHLD, _ignore)  # Python writes to the pipe only if a handler is set
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)  # a full pipe is readable already

    def __enter__(self) -> "Alarm":
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._before)
        os.close(self._reading)
        os.close(self._writing)

    def fileno(self) -> int:
        return self._reading

    def quiet(self) -> None:
        """Forget the signals until now."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, 65536)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the code that waits on the alarm looks at all processes."""


class NodeConnections:
    """This node's connections, by the node rank of the other side."""

    def __init__(self, wires: Mapping[int, Wire] | None = None, *, master_addr: str = "") -> None:
        self._wires = dict(wires or {})
        self._master_addr = master_addr
        self._selector = selectors.DefaultSelector()
        self._failures: list[JobFailure] = []
        self._last_sweep = 0.0
        self._early: list[tuple[int, Message]] = []
        for node, wire in self._wires.items():
            self._selector.register(wire, selectors.EVENT_READ, node)
            self._early += [(node, message) for message in wire.rest()]

    @property
    def others(self) -> frozenset[int]:
        """The node ranks of all connections, open or lost."""
        return frozenset(self._wires)

    @property
    def master_addr(self) -> str:
        """The address at which node 0 was reached; empty if no address had to be found."""
        for node, wire in self._wires.items():
            return wire.own if node else wire.peer
        return self._master_addr

    def heed(self, alarm: Alarm) -> None:
        """Let `poll` return when the alarm becomes readable."""
        self._selector.register(alarm, selectors.EVENT_READ)

    def poll(self, seconds: float) -> list[tuple[int, Message]]:
        """Return the messages of the other nodes; wait for them at most ``seconds``, or until an alarm."""
        messages, self._early = self._early, []
        deadline, alarmed = time.monotonic() + seconds, False
        while not messages and not alarmed and (left := deadline - time.monotonic()) > 0:
            self._sweep()
            for key, events in self._selector.select(min(left, _SWEEP_SECONDS)):
                if isinstance(key.fileobj, Alarm):
                    alarmed = True
                    key.fileobj.quiet()
                    continue
                wire = self._wires[key.data]
                if events & selectors.EVENT_WRITE:
                    wire.flush()
                messages += [(key.data, message) for message in wire.receive()]
                self._watch(key.data)
        return messages

    def _sweep(self) -> None:
        if time.monotonic() - self._last_sweep < _SWEEP_SECONDS:
            return
        self._last_sweep = time.monotonic()
        for node, wire in self._wires.items():
            wire.keep_alive()
            self._watch(node)

    def _watch(self, node: int) -> None:
        """Register a connection for reading, for writing if it has unsent bytes, or not at all if it is gone."""
        wire = self._wires[node]
        key = self._selector.get_map().get(wire.fileno())
        if key is None:
            return
        if wire.end_reason:
            self._selector.unregister(wire)
            self._failures.append(
                JobFailure(node=node, code=Code.NODE_LOST, why=f"node {node} is gone: {wire.end_reason}")
            )
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.unsent else 0)
        if events != key.events:
            self._selector.modify(wire, events, node)

    def lost(self) -> list[JobFailure]:
        """Return a failure for each node whose connection is lost."""
        return self._failures

    def tell(self, kind: str, **values: object) -> None:
        """Send a message to all other nodes."""
        for node, wire in self._wires.items():
            wire.send(kind, **values)
            self._watch(node)

    def close(self) -> None:
        """Close the connections when the other nodes have read all messages."""
        farewell(self._wires.values())
        self._selector.close()


def farewell(wires: Iterable[Wire]) -> None:
    """Close the connections after the other side, at most 2 s later: closing on unread bytes discards sent messages."""
    with selectors.DefaultSelector() as selector:
        left = {wire for wire in wires if not wire.end_reason}
        for wire in left:
            selector.register(wire, selectors.EVENT_READ)
            wire.finish()
        deadline = time.monotonic() + FAREWELL_SECONDS
        while left and time.monotonic() < deadline:
            for key, _ in selector.select(0.05):
                assert isinstance(key.fileobj, Wire)
                key.fileobj.receive()
            for wire in [wire for wire in left if wire.end_reason]:
                selector.unregister(wire)
                left.remove(wire)
            for wire in left:
                wire.flush()
    for wire in wires:
        wire.close()
