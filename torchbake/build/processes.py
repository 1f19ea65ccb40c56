"""The processes of builds, which are ended together."""

import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from torchbake.core.signals import signal_group

_PATIENCE = 15  # seconds for a build to remove its partial exports after SIGINT


class BuildProcesses:
    """The processes of the builds of one run. Thread-safe."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> "subprocess.Popen[str]":
        """Start a process whose output and errors are one stream. Raises KeyboardInterrupt after `stop`, and OSError.

        It is in a new session, so that Ctrl-C reaches only torchbake, and inherits the files of secrets.
        """
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", start_new_session=True, env=env, close_fds=False,
            )  # fmt: skip
            self._running.add(process)
        return process

    def forget(self, process: "subprocess.Popen[str]") -> None:
        """Forget a process that has ended."""
        with self._lock:
            self._running.discard(process)

    def stop(self) -> None:
        """End every process, and wait until each has removed its partial results."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            signal_group(process, signal.SIGINT)
        deadline = time.monotonic() + _PATIENCE
        for process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                signal_group(process, signal.SIGKILL)
