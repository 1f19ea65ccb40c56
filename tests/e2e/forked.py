"""Programs of Python in processes that are forked from one that has loaded their modules.

To load them takes a third of a second of a core, and the tests call hundreds. What a program does is the same; that it
starts from nothing is what people's own lines test, through nox and by `torchbake`.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchbake.commands import COMMANDS

# What the commands import when they run, and what their checks of images do.
_COMMANDS = tuple(f"torchbake.commands.{name}" for name in COMMANDS)
_LOADED = ("torchbake.cli", *_COMMANDS, "filelock", "pytest", "testinfra", "uv")
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([*_LOADED])


def run_forked(
    module: str, *arguments: str, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE ARGUMENTS``, and return how it ended, as `subprocess.run` does."""
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryDirectory() as folder:
        pathes = [Path(folder, name) for name in ("out", "err")]
        process = _CONTEXT.Process(target=_run, args=(module, arguments, cwd, dict(env), pathes))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout, *(path.read_bytes() for path in pathes))
        out, err = (path.read_text() for path in pathes)
        return subprocess.CompletedProcess(command, process.exitcode, out, err)


def _run(module: str, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], pathes: Sequence[Path]) -> None:
    """In the new process: what `python -m` would find, then the module."""
    for number, path in enumerate(pathes, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
