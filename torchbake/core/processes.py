"""Run a process with a time limit, and end it with its child processes."""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchbake.core.plain_text import last_line
from torchbake.core.signals import shell_code

Process = subprocess.Popen[bytes]
_GRACE = 10  # seconds for a process to end its children after SIGTERM
_LOOK = 0.1  # at most so many seconds between two checks of a process; most processes are short


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    """The end of a process: exit code as a shell has it, duration in seconds, and time (``at``) since the epoch."""

    code: int
    seconds: float
    at: float
    stdout: str
    stderr: str
    late: bool = False

    @property
    def last_words(self) -> str:
        """The last line of stderr."""
        return last_line(self.stderr, 300)


def run_to_end(
    words: Sequence[str], *, env: Mapping[str, str], limit: float, stopping: threading.Event, cwd: Path | None = None
) -> ProcessResult:
    """Run a command in a new process group, and kill the rest of the group at its end. Raises as `watch` does."""

    def start(out: IO[bytes], err: IO[bytes]) -> Process:
        return subprocess.Popen(
            [*words], env={**env}, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )

    return watch(start, _end, limit=limit, stopping=stopping)


def watch(
    start: Callable[[IO[bytes], IO[bytes]], Process], end: Callable[[Process], None], *,
    limit: float, stopping: threading.Event,
) -> ProcessResult:  # fmt: skip
    """Start a process and wait until it ends, or ``limit`` seconds have passed. ``end`` is called in any case.

    ``start`` gets files for the process's output and errors. Raises KeyboardInterrupt once ``stopping`` is set, after
    the process has ended, and OSError if the program cannot be started.
    """
    started, elapsed = time.monotonic(), 0.0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(out, err)
        try:
            while process.poll() is None and elapsed <= limit:
                if stopping.wait(min(_LOOK, 0.002 + elapsed / 4)):
                    raise KeyboardInterrupt
                elapsed = time.monotonic() - started
        finally:
            end(process)
        for file in (out, err):
            file.seek(0)
        stdout, stderr = (file.read().decode(errors="replace") for file in (out, err))
    seconds = round(time.monotonic() - started, 3)
    return ProcessResult(
        code=shell_code(process.returncode),
        seconds=seconds,
        at=time.time(),
        stdout=stdout,
        stderr=stderr,
        late=elapsed > limit,
    )


def _end(process: Process) -> None:
    """Send SIGTERM to the process, wait until it has ended its children, then kill the rest of its group."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
