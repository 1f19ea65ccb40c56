"""One connection between the `run`s of two nodes: JSON lines, with a heartbeat in both directions."""

import contextlib
import json
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .messages import Message, parse

if TYPE_CHECKING:
    from .seal import Seals

BEAT_SECONDS = 2.0
LOST_SECONDS = 15.0  # After so long without a message a node is paused, cut off or without power.
FAREWELL_SECONDS = 2.0  # for the other side to read the last message
HELLO_BYTES = 16 << 10  # the longest message of a stranger
UNSEALED = "a message in its name is not proven by the JOB_TOKEN: something between the nodes altered or added it"
_MOST_BYTES = 1 << 20  # far above any message: a stranger's stream must not fill the memory
_MOST_UNSENT = 4 << 20
_READ_BYTES = 64 << 10
_MOST_READS = 16  # in one call: an endless stream must not delay the other connections


class Wire:
    """A connected non-blocking socket. ``end_reason`` is the reason why no more messages come, or empty."""

    def __init__(self, connection: socket.socket, *, most_bytes: int = _MOST_BYTES) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._most_bytes = most_bytes
        self._unread = b""
        self._unsent = b""
        self._backlog: deque[Message] = deque()
        self._beat = 0.0
        self._finishing = self._finished = False
        self._seals: Seals | None = None
        self.last_receipt = time.monotonic()
        self.end_reason = ""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def address(self) -> str:
        """The other side's address in messages to people."""
        return self.peer or "an unknown address"

    @property
    def peer(self) -> str:
        """The other side's address; empty if the connection is gone."""
        return _host(self._socket.getpeername)

    @property
    def own(self) -> str:
        """The address at which the other side reaches this node; empty if the socket is closed."""
        return _host(self._socket.getsockname)

    @property
    def open(self) -> bool:
        return self._socket.fileno() >= 0

    @property
    def unsent(self) -> bool:
        """Return True if bytes wait until the other side reads."""
        return bool(self._unsent) and not self.end_reason

    def trust(self) -> None:
        """Allow long messages, as the other side has proven itself."""
        self._most_bytes = _MOST_BYTES

    def seal(self, seals: "Seals | None") -> None:
        """Seal each line from now on, and expect a seal on each that comes; None leaves the lines bare."""
        self._seals = seals

    def send(self, kind: str, **values: Any) -> None:
        """Send a message now, or later if the other side reads slowly; if it never reads, ``gone`` is set."""
        if self.end_reason or self._finishing:
            return
        line = json.dumps({"kind": kind, **values}).encode()
        self._unsent += (self._seals.put_on(line) if self._seals else line) + b"\n"
        self.flush()
        if len(self._unsent) > _MOST_UNSENT:
            self.end_reason = "it does not read what is sent to it"

    def flush(self) -> None:
        """Send unsent bytes as far as the socket takes them."""
        try:
            while self._unsent and not self.end_reason:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            if self._finishing and not self._finished and not self.end_reason:
                self._finished = True
                self._socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError as error:
            self.end_reason = self.end_reason or error.strerror or str(error)

    def receive(self) -> list[Message]:
        """Return the messages since the last call, without waiting. Invalid bytes end the connection."""
        for _ in range(_MOST_READS):
            data = self._read()
            if not data:
                break
            self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        messages = []
        try:
            if max(map(len, (*lines, self._unread))) > self._most_bytes:
                raise ValueError("it says more than `run` does")
            for line in lines:
                bare = self._seals.take_off(line) if self._seals else line
                if bare is None:
                    self.end_reason, self._unread = UNSEALED, b""
                    break  # all lines before it are proven
                messages.append(parse(bare))
        except ValueError:
            self.end_reason = "it does not speak as `run` does"
            self._unread = b""
            return []
        if messages:  # incomplete lines do not prove that the node is alive
            self.last_receipt = time.monotonic()
        return [message for message in messages if message["kind"] != "beat"]

    def _read(self) -> bytes:
        if self.end_reason:
            return b""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            self.end_reason = error.strerror or str(error)
            return b""
        if not data:
            self.end_reason = "it closed the connection"
        return data

    def next(self, seconds: float) -> Message | None:
        """Wait for the next message; None after so many seconds. For nodes with a single connection."""
        if not self._backlog:
            waiting = select.poll()
            waiting.register(self._socket, select.POLLIN | (select.POLLOUT if self.unsent else 0))
            waiting.poll(max(0.0, seconds) * 1000)
            self.flush()
            self._backlog.extend(self.receive())
        return self._backlog.popleft() if self._backlog else None

    def rest(self) -> list[Message]:
        """Return the messages that `next` has received but not yet returned."""
        kept_items, self._backlog = list(self._backlog), deque()
        return kept_items

    def keep_alive(self) -> None:
        """Send a heartbeat if it is due, and set ``gone`` if the other side has sent none for 15 s."""
        now = time.monotonic()
        if not self.end_reason and now - self._beat >= BEAT_SECONDS:
            self._beat = now
            self.send("beat")
        if not self.end_reason and now - self.last_receipt >= LOST_SECONDS:
            self.end_reason = f"it said nothing for {LOST_SECONDS:.0f} s"

    def finish(self) -> None:
        """Close the sending side when all bytes are sent; keep on receiving."""
        self._finishing = True
        self.flush()

    def close(self) -> None:
        self._socket.close()


def _host(end: Callable[[], Any]) -> str:
    with contextlib.suppress(OSError, IndexError, TypeError):
        return str(end()[0]).removeprefix("::ffff:")
    return ""
