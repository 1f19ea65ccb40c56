"""Run `job run` as a user types it; ``env`` has the PATH of a launcher's tools."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.conftest import ROOT
from tests.e2e.launchers.ended import Ended
from tests.e2e.nodes import SLOW


def job_run(
    target: str, file: Path, env: Mapping[str, str], *options: str, interrupt_after: int | None = None
) -> Ended:
    """Run the job to its end, or send Ctrl-C after ``interrupt_after`` nodes have printed `begun`."""
    command = [sys.executable, "-m", "torchbake", "job", "run", str(file), "--target", target, *options]
    began, output, lines = time.monotonic(), "", list[tuple[float, str]]()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        limit = threading.Timer(SLOW, process.kill)
        limit.start()
        for line in process.stdout or ():
            output += line
            lines.append((time.monotonic() - began, line))
            if output.count("begun") == interrupt_after and line.strip().endswith("begun"):
                process.send_signal(signal.SIGINT)
        process.wait()
        limit.cancel()
        errors.seek(0)
        output += errors.read()
    return Ended(code=process.returncode, output=output, seconds=time.monotonic() - began, lines=tuple(lines))


def command_of(name: str, words: str, folder: Path, *, first: str = "") -> None:
    """Write a command into a folder for PATH: it runs the shell ``words`` with the command's arguments."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\n{first}exec {words} "$@"\n')
    path.chmod(0o755)
