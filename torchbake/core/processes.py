"""One process of this machine, run to its end with a time limit, and with all that it started."""

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
_GRACE = 10  # seconds that a process gets to end what it started
_LOOK = 0.1  # seconds between two looks at it


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a process ended: its exit code as a shell has it, its seconds, and when (since the epoch)."""

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
) -> Finished:
    """Run a command as `watch` does, in a group of processes of its own, of which nothing stays."""

    def start(out: IO[bytes], err: IO[bytes]) -> Process:
        return subprocess.Popen(
            [*words], env={**env}, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )

    return watch(start, _end, limit=limit, stopping=stopping)


def watch(
    start: Callable[[IO[bytes], IO[bytes]], Process],
    end: Callable[[Process], None],
    *,
    limit: float,
    stopping: threading.Event,
) -> Finished:
    """A process from its start, with files for what it says, until it ends or is late; ``end`` is called in any case.

    Raises KeyboardInterrupt once ``stopping`` is set, after the process has ended, and OSError for no such program.
    """
    started, late = time.monotonic(), False
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(out, err)
        try:
            while process.poll() is None and not late:
                if stopping.wait(_LOOK):
                    raise KeyboardInterrupt
                late = time.monotonic() - started > limit
        finally:
            end(process)
        stdout, stderr = _text(out), _text(err)
    seconds = round(time.monotonic() - started, 3)
    return Finished(
        code=shell_code(process.returncode), seconds=seconds, at=time.time(), stdout=stdout, stderr=stderr, late=late
    )


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _end(process: Process) -> None:
    """SIGTERM, on which a program ends all that it started; SIGKILL for what is still there of its group."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
