"""How far the reading of an image is: its layers and bytes so far."""

import threading
import time
from collections.abc import Callable
from typing import IO

from torchbake.core.sizes import human

_PAUSE = 0.1  # seconds between two texts


class ReadStoppedError(Exception):
    """Another thread has failed, or the user has interrupted the run; nobody needs this thread's result."""


class ReadProgress:
    """Counts what is read, and calls ``show`` with a text now and then. Safe for many threads.

    After `stop` every further read raises ReadStoppedError, which ends threads that read.
    """

    def __init__(self, show: Callable[[str], object] = lambda _: None) -> None:
        self._show, self._lock, self._last_time, self._stopped = show, threading.Lock(), 0.0, False
        self._layers = self._bytes = self._total = 0

    def begin(self, layers: int) -> None:
        """Begin to read an image with a known number of layers."""
        self._total, self._stopped = layers, False

    def add(self, size: int) -> None:
        """Count bytes as they were stored."""
        if self._stopped:
            raise ReadStoppedError
        with self._lock:
            self._bytes += size
            now = time.monotonic()
            if now - self._last_time < _PAUSE:
                return
            self._last_time = now
            text = f"layer {self._layers + 1}" + (f" of {self._total}" if self._total else "")
            self._show(f"{text}, {human(self._bytes)}")

    def end_layer(self) -> None:
        with self._lock:
            self._layers += 1

    def stop(self) -> None:
        self._stopped = True


class CountedFile:
    """A file whose reads are counted."""

    def __init__(self, file: IO[bytes], progress: ReadProgress) -> None:
        self._file, self._progress = file, progress

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._progress.add(len(data))
        return data
