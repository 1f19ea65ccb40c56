"""What the nodes of a job say, as it comes: whole lines with the node's name, or of one node all as it is."""

import sys
import threading
from collections.abc import Iterable
from typing import BinaryIO

Piece = tuple[bytes | None, bytes | None]  # of stdout and of stderr


class Output:
    """The streams of all nodes; each is read in a thread of its own, so that none waits for another."""

    def __init__(self, stdout: BinaryIO | None = None, stderr: BinaryIO | None = None) -> None:
        self._streams = (stdout or sys.stdout.buffer, stderr or sys.stderr.buffer)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._failed: list[OSError] = []

    def show(self, pieces: Iterable[Piece], name: str = "") -> None:
        """Show from now on what comes; with a name before each line."""
        # A daemon: a stream that never ends keeps nobody from ending.
        thread = threading.Thread(target=self._copy, args=(pieces, name), daemon=True)
        self._threads.append(thread)
        thread.start()

    def check(self) -> None:
        """Raises what a stream of ours has refused: its reader has gone, or a disk is full."""
        if self._failed:
            raise self._failed[0]

    def end(self, seconds: float) -> None:
        """Wait for what was said last."""
        for thread in self._threads:
            thread.join(seconds)
        self.check()

    def _copy(self, pieces: Iterable[Piece], name: str) -> None:
        lines = tuple(Lines(name) for _ in self._streams)
        try:
            for piece in pieces:
                for line, stream, data in zip(lines, self._streams, piece, strict=True):
                    self._write(stream, line.feed(data or b""))
            for line, stream in zip(lines, self._streams, strict=True):
                self._write(stream, line.rest())
        except OSError as error:
            self._failed.append(error)

    def _write(self, stream: BinaryIO, data: bytes) -> None:
        if data:
            with self._lock:
                stream.write(data)
                stream.flush()


class Lines:
    """Puts a name before whole lines. Without a name all passes, so that a progress bar is seen as it moves."""

    def __init__(self, name: str) -> None:
        self._before = f"{name} | ".encode() if name else b""
        self._begun = b""

    def feed(self, data: bytes) -> bytes:
        """What can be shown now."""
        if not self._before:
            return data
        *whole, self._begun = (self._begun + data).split(b"\n")
        return b"".join(self._before + line + b"\n" for line in whole)

    def rest(self) -> bytes:
        """The last line, if it has no end."""
        return self._before + self._begun + b"\n" if self._begun else b""
