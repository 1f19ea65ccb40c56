"""The end of a command's process: immediate, with all output written, and with the exit code of the command."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from torchbake.core.paths import TOOLKIT
from torchbake.errors import StorageError, UsageError

Completed = subprocess.CompletedProcess[str]
Run = Callable[..., Completed]
_DOORS = [["-m", "torchbake"], [str(TOOLKIT)]]
every_door = pytest.mark.parametrize("door", _DOORS, ids=["module", "folder"])
# Modules that are taken apart call this last; a process that ends at once never does.
_WITNESS = """
import os, sys
class Witness:
    def __del__(self, write=os.write): write(1, b"taken apart\\n")
sys.witness = Witness()
sys.argv[1:] = {words!r}
from torchbake import __main__, cli
{change}
__main__.run()
"""


@pytest.fixture
def end(python: Run) -> Callable[..., Completed]:
    """How a process ends that runs a command, changed by a line of Python."""

    def run(words: list[str], change: str = "") -> Completed:
        return python("-c", _WITNESS.format(words=words, change=change))

    return run


@every_door
def test_the_code_is_that_of_the_command(door: list[str], python: Run) -> None:
    process = python(*door, "no-such-command")
    assert process.returncode == UsageError.exit_code
    assert "no-such-command" in process.stderr


def test_a_finished_command_exits_at_once_with_all_its_output(end: Callable[..., Completed]) -> None:
    process = end(["--version"])
    assert process.returncode == 0
    assert re.fullmatch(r"torchbake \S+\n", process.stdout)


def test_what_others_want_done_at_the_end_is_done(end: Callable[..., Completed]) -> None:
    command = "import atexit; cli.main = lambda argv: bool(atexit.register(print, 'cleaned up')) - 1"
    process = end([], command)
    assert process.returncode == 0
    assert process.stdout.splitlines()[-1] == "cleaned up"


def test_a_thread_that_still_works_is_waited_for(end: Callable[..., Completed]) -> None:
    work = "lambda: (threading.main_thread().join(), print('finished'))"
    change = f"import threading; threading.Thread(target={work}).start()"
    assert end(["--version"], change).stdout.splitlines()[-1] == "finished"


def test_a_fault_of_our_own_is_exit_code_1_with_its_traceback(end: Callable[..., Completed]) -> None:
    process = end(["--version"], "cli.main = lambda argv: 1 / 0")
    assert process.returncode == 1
    assert "ZeroDivisionError" in process.stderr


def test_a_result_that_the_disk_does_not_take_is_an_error(python: Run) -> None:
    with Path("/dev/full").open("w") as full:
        process = python("-m", "torchbake", "--version", stdout=full)
    assert process.returncode == StorageError.exit_code
    assert "No space left on device" in process.stderr
