"""Python programs in processes that are forked from a process that has already loaded their modules.

Loading them takes a third of a core-second, and the tests call hundreds of programs. The program's behaviour is the
same. Other tests start programs from scratch, through nox and by `torchbake`.
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

# Modules that the commands and their image checks import when they run.
_COMMANDS = tuple(f"torchbake.commands.{name}" for name in COMMANDS)
_LOADED = ("torchbake.cli", *_COMMANDS, "filelock", "pytest", "testinfra", "uv")
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([*_LOADED])


def run_forked(
    module: str, *arguments: str, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE ARGUMENTS``, and return its result as `subprocess.run` does."""
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("out", "err")]
        process = _CONTEXT.Process(target=_run, args=(module, arguments, cwd, dict(env), paths))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout, *(path.read_bytes() for path in paths))
        out, err = (path.read_text() for path in paths)
        return subprocess.CompletedProcess(command, process.exitcode, out, err)


def _run(module: str, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], paths: Sequence[Path]) -> None:
    """In the new process: set up the state of `python -m`, then run the module."""
    for number, path in enumerate(paths, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
