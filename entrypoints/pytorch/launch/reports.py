"""The reports of this node's ranks: rank.py connects to a socket of `run`, and reports the state of its script.

The socket is an abstract Unix socket (unix(7)), which needs no folder: a full disk cannot end the job.
"""

import os
import socket
import struct
from dataclasses import dataclass

from .wire import Wire


@dataclass(eq=False, kw_only=True)
class RankProcess:
    """One rank in one attempt; ``code`` is None as long as it runs."""

    wire: Wire
    pid: int  # of rank.py
    number: int = -1
    local: int = 0
    attempt: int = 0
    script: int = 0  # the script's process
    code: int | None = None
    words: tuple[str, ...] = ()
    signalled: bool = False  # it ended after a signal to end
    silent: bool = False  # its connection ended without a report of its end

    def hear(self) -> None:
        """Process its messages; a rank whose connection ends without a report counts as killed."""
        for message in self.wire.receive():
            if message["kind"] == "rank":
                self.number, self.local, self.attempt = message["rank"], message["local_rank"], message["attempt"]
            elif message["kind"] == "script":
                self.script = message["pid"]
            elif message["kind"] == "rank-ended":
                self.code, self.words, self.signalled = message["code"], tuple(message["words"]), message["told"]
        if self.wire.end_reason and self.code is None:
            self.code, self.silent = 137, True


class RankReports:
    """The socket, and the ranks in the order of their first reports."""

    def __init__(self) -> None:
        self.name = f"torchbake-run-{os.getpid()}-{os.urandom(8).hex()}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{self.name}")
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self._coming: list[RankProcess] = []
        self.ranks: list[RankProcess] = []

    def poll(self) -> None:
        """Process the messages since the last call."""
        while connection := self._accept():
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, user, _group = struct.unpack("3i", credentials)
            if pid and user == os.getuid():  # the id is 0 for a process of another container
                self._coming.append(RankProcess(wire=Wire(connection), pid=pid))
            else:
                connection.close()
        for rank in [*self._coming, *self.ranks]:
            if not rank.wire.end_reason:
                rank.hear()
        self.ranks += [rank for rank in self._coming if rank.number >= 0]
        self._coming = [rank for rank in self._coming if rank.number < 0 and not rank.wire.end_reason]

    def _accept(self) -> socket.socket | None:
        try:
            return self._listener.accept()[0]
        except OSError:
            return None
