"""One process of this machine, run to its end with a time limit, and with all that it started."""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
        return (self.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]


def run_to_end(
    words: Sequence[str], *, env: Mapping[str, str], limit: float, stopping: threading.Event, cwd: Path | None = None
) -> Finished:
    """Run a command, in a group of processes of its own; after ``limit`` seconds it is ended.

    Raises KeyboardInterrupt once ``stopping`` is set, after the process has ended, and OSError for no such program.
    """
    started, late = time.monotonic(), False
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [*words], env={**env}, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            while process.poll() is None and not late:
                if stopping.wait(_LOOK):
                    raise KeyboardInterrupt
                late = time.monotonic() - started > limit
        finally:
            _end(process)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    seconds = round(time.monotonic() - started, 3)
    return Finished(code=code, seconds=seconds, at=time.time(), stdout=said[0], stderr=said[1], late=late)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, on which a program ends all that it started; SIGKILL for what is still there of its group."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
