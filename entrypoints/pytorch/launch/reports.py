"""What this node's ranks report: rank.py connects to a socket of ours, and says how its script is.

An abstract Unix socket (unix(7)), so that it needs no place in a folder: one that is full ends no job.
"""

import os
import socket
import struct
from dataclasses import dataclass

from .wire import Wire


@dataclass(eq=False, kw_only=True)
class Rank:
    """One process of this node, in one attempt; ``code`` is None as long as it lives."""

    wire: Wire
    pid: int  # of rank.py
    number: int = -1
    local: int = 0
    attempt: int = 0
    script: int = 0  # the script's process
    code: int | None = None
    words: tuple[str, ...] = ()
    told: bool = False
    silent: bool = False  # it hung up without a last word

    def hear(self) -> None:
        """Take in what it says; one that hangs up without a last word counts as killed."""
        for message in self.wire.receive():
            if message["kind"] == "rank":
                self.number, self.local, self.attempt = message["rank"], message["local_rank"], message["attempt"]
            elif message["kind"] == "script":
                self.script = message["pid"]
            elif message["kind"] == "rank-ended":
                self.code, self.words, self.told = message["code"], tuple(message["words"]), message["told"]
        if self.wire.gone and self.code is None:
            self.code, self.silent = 137, True


class Reports:
    """The socket, and the ranks in the order in which they came."""

    def __init__(self) -> None:
        self.name = f"torchbake-run-{os.getpid()}-{os.urandom(8).hex()}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{self.name}")
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self._coming: list[Rank] = []
        self.ranks: list[Rank] = []

    def poll(self) -> None:
        """Take in what has been said since the last call."""
        while connected := self._accept():
            pid, user = _peer(connected)
            if pid and user == os.getuid():
                self._coming.append(Rank(wire=Wire(connected), pid=pid))
            else:
                connected.close()
        for rank in [*self._coming, *self.ranks]:
            if not rank.wire.gone:
                rank.hear()
        self.ranks += [rank for rank in self._coming if rank.number >= 0]
        self._coming = [rank for rank in self._coming if rank.number < 0 and not rank.wire.gone]

    def _accept(self) -> socket.socket | None:
        try:
            return self._listener.accept()[0]
        except OSError:
            return None


def _peer(connected: socket.socket) -> tuple[int, int]:
    """The process at the other end, 0 when it is in another container, and its user."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, user, _group = struct.unpack("3i", credentials)
    return pid, user
