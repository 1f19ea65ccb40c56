"""Processes in memory, in the place of `subprocess` in one module: functions in threads, which hear signals."""

import itertools
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

# Beyond what a kernel gives out, so that a signal that goes astray reaches nobody.
_FIRST_PID = 2**30
_PATIENCE = 20  # seconds, the timeout of a test


class Process:
    """A process that runs ``work``, which returns its exit code. Its output goes to its stdout."""

    def __init__(self, pid: int, command: Sequence[str], options: Mapping[str, Any], work: "Work") -> None:
        self.pid, self.command, self.options = pid, list(command), options
        self.returncode: int | None = None
        self.messages: list[int] = []  # signals
        self.orphans: set[str] = set()  # children that outlive it in its group
        self._signals: queue.Queue[int] = queue.Queue()
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._file = _file_of(options.get("stdout"))
        self._attended, self._ended = threading.Event(), threading.Event()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    @property
    def env(self) -> Mapping[str, str]:
        return dict(self.options["env"])

    @property
    def stdout(self) -> Iterator[str]:
        return iter(self._lines.get, None)

    def option(self, name: str) -> str:
        """The word after ``name`` on its command line."""
        return self.command[self.command.index(name) + 1]

    def say(self, text: str) -> None:
        if self._file is None:
            self._lines.put(text)
        else:
            os.write(self._file, text.encode())

    def hear(self) -> int:
        """Wait for the next signal."""
        return self._signals.get(timeout=_PATIENCE)

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(_PATIENCE if timeout is None else timeout):
            raise subprocess.TimeoutExpired(self.command, timeout or _PATIENCE)
        assert self.returncode is not None
        return self.returncode

    def poll(self) -> int | None:
        return self.returncode

    def wait_for_attention(self) -> None:
        """Wait until a thread reads the output, and 0.1 s more, until a signal would wake the thread."""
        assert self._attended.wait(_PATIENCE)
        time.sleep(0.1)

    def communicate(self) -> tuple[str, str]:
        self._attended.set()
        output = "".join(self.stdout)
        self.wait()
        return output, ""

    def send_signal(self, number: int) -> None:
        if self._ended.is_set():
            return
        self.messages.append(number)
        self._signals.put(number)
        if number == signal.SIGKILL:
            self._end(-number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _run(self, work: "Work") -> None:
        code = 1
        try:
            code = work(self)
        finally:
            self._end(code)

    def _end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self._lines.put(None)
            self._ended.set()


Work = Callable[[Process], int]


def _file_of(stdout: Any) -> int | None:
    """Return a duplicate of the file descriptor, like a real process has; None if the parent reads the output."""
    if stdout in (None, subprocess.PIPE, subprocess.DEVNULL):
        return None
    return os.dup(stdout if isinstance(stdout, int) else stdout.fileno())


class Processes:
    """A replacement of `subprocess` in ``module``; every process runs ``work``."""

    PIPE, STDOUT, DEVNULL = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL
    TimeoutExpired, CompletedProcess = subprocess.TimeoutExpired, subprocess.CompletedProcess

    def __init__(self, work: Work) -> None:
        self._work, self._pids = work, itertools.count(_FIRST_PID)
        self.all: list[Process] = []

    def stand_for(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> "Processes":
        for module in modules:
            monkeypatch.setattr(module, "subprocess", self)
        monkeypatch.setattr(os, "killpg", self._killpg)
        return self

    def Popen(self, command: Sequence[str], **options: Any) -> Process:  # noqa: N802
        process = Process(next(self._pids), command, options, self._work)
        self.all.append(process)
        return process

    def run(self, command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        process = self.Popen(command, **options)
        output, _ = process.communicate()
        return subprocess.CompletedProcess(command, process.wait(), output, "")

    def _killpg(self, pid: int, number: int) -> None:
        process = next((process for process in self.all if process.pid == pid), None)
        if process is None or (process.returncode is not None and not process.orphans):
            raise ProcessLookupError
        if number == signal.SIGKILL:
            process.orphans.clear()
        process.send_signal(number)


def interrupt() -> None:
    """Ctrl-C, which the main thread hears."""
    ident = threading.main_thread().ident
    assert ident
    signal.pthread_kill(ident, signal.SIGINT)
