"""One connection between two nodes' `run`s: JSON lines, and a pulse that shows that the other side lives."""

import contextlib
import json
import socket
import time
from typing import Any

Message = dict[str, Any]

BEAT_SECONDS = 2.0
LOST_SECONDS = 15.0  # a node that says nothing for so long is gone: paused, cut off or without power
_MOST_BYTES = 1 << 20  # no message is near so long; a stranger's stream must not fill the memory


class Wire:
    """A connected socket. ``gone`` is the reason why nothing more will come, or empty."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._unread = b""
        self._beat = 0.0
        self.heard = time.monotonic()
        self.gone = ""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, kind: str, **values: Any) -> None:
        """Say something; a side that no longer listens is seen by ``gone``."""
        data = json.dumps({"kind": kind, **values}).encode() + b"\n"
        try:
            self._socket.setblocking(True)
            self._socket.settimeout(5)
            self._socket.sendall(data)
        except OSError as error:
            self.gone = self.gone or error.strerror or str(error)
        finally:
            with contextlib.suppress(OSError):
                self._socket.setblocking(False)

    def receive(self) -> list[Message]:
        """What has come since the last call, without waiting. A stranger's bytes end the connection."""
        while not self.gone:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                break
            except OSError as error:
                self.gone = error.strerror or str(error)
                break
            if not data:
                self.gone = "it closed the connection"
                break
            self.heard = time.monotonic()
            self._unread += data
            if len(self._unread) > _MOST_BYTES:
                self.gone = "it does not speak as `run` does"
        *lines, self._unread = self._unread.split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
            return [message for message in messages if message["kind"] != "beat"]
        except (ValueError, TypeError, KeyError):
            self.gone = "it does not speak as `run` does"
            return []

    def keep_alive(self) -> None:
        """Beat when it is time, and notice when the other side has not for too long."""
        now = time.monotonic()
        if not self.gone and now - self._beat >= BEAT_SECONDS:
            self._beat = now
            self.send("beat")
        if not self.gone and now - self.heard >= LOST_SECONDS:
            self.gone = f"it said nothing for {LOST_SECONDS:.0f} s"

    def finish(self) -> None:
        """Say no more, but go on listening."""
        self._beat = float("inf")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()
