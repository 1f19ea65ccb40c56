"""The output of a job's nodes as it arrives: whole lines after the node's name, or unchanged for a single node."""

import sys
import threading
from collections.abc import Iterable
from typing import BinaryIO

Piece = tuple[bytes | None, bytes | None]  # of stdout and of stderr


class Output:
    """The streams of all nodes. A thread reads each, so that no stream waits for another."""

    def __init__(self, stdout: BinaryIO | None = None, stderr: BinaryIO | None = None) -> None:
        self._streams = (stdout or sys.stdout.buffer, stderr or sys.stderr.buffer)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._failed: list[OSError] = []

    def show(self, pieces: Iterable[Piece], name: str = "") -> None:
        """Show a stream from now on, with the name before each line."""
        # A daemon thread, so that a stream without an end does not keep the process alive.
        thread = threading.Thread(target=self._copy, args=(pieces, name), daemon=True)
        self._threads.append(thread)
        thread.start()

    def check(self) -> None:
        """Raise OSError if stdout or stderr failed: its reader has gone, or a disk is full."""
        if self._failed:
            raise self._failed[0]

    def end(self, seconds: float) -> None:
        """Wait for the last output of each stream, at most this many seconds."""
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
    """Puts a name before whole lines. Without a name all output passes at once, so that a progress bar moves."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name} | ".encode() if name else b""
        self._partial = b""

    def feed(self, data: bytes) -> bytes:
        """Add output, and return the part of it that can be shown now."""
        if not self._prefix:
            return data
        *whole, self._partial = (self._partial + data).split(b"\n")
        return b"".join(self._prefix + line + b"\n" for line in whole)

    def rest(self) -> bytes:
        """Return the last line, if it has no end."""
        return self._prefix + self._partial + b"\n" if self._partial else b""
