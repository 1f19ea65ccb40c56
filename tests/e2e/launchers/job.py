"""One job for all launchers, as `job show` writes it for each, and checks of its end."""

import json
import shutil
from pathlib import Path

from tests.e2e.conftest import torchbake
from tests.e2e.launchers.ended import Ended
from tests.e2e.nodes import JOBS

NAME = "torchbake-test-launched"
NODES = 3
TRAINS, FAILS = ("ddp.py",), ("leave.py", "2", "7")
MEETS, SAVES = ("meet.py",), ("save.py",)
TORCHRUN = ("torchrun", "meet.py")  # a command, which `run` does not start
_parameters: set[str] = set()


def job_file(folder: Path, image: str, command: tuple[str, ...], **more: object) -> Path:
    """Write the job file and the files of the job into ``folder``; return the job file."""
    script, *args = command
    starts: dict[str, object] = {"script": script, "args": args, "timeouts": {"rendezvous": 120, "stop": 10}}
    if command == TORCHRUN:
        starts = {"command": command, "timeouts": {"stop": 10}}
    shutil.copytree(JOBS, folder / "files", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    job = {
        "name": NAME, "image": image, "files": {"folder": "files"}, "nodes": NODES, "processes": 1,
        "resources": {"cpu": 1, "memory": "2Gi"}, **starts, **more,
    }  # fmt: skip
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))  # which is YAML too
    return path


def manifest(target: str, folder: Path, image: str, command: tuple[str, ...], **more: object) -> str:
    """Return the output of `job show` for this launcher; --no-pin, because no registry serves the image."""
    process = torchbake("job", "show", target, str(job_file(folder, image, command, **more)), "--no-pin")
    assert process.returncode == 0, process.stderr
    return process.stdout


def check_trained(launcher: str, end: Ended, *, count: int = NODES) -> None:
    """Check that all nodes and launchers find equal parameters; ``count`` is the number of nodes that show output."""
    print(f"{launcher}: trained on {NODES} nodes to the end in {end.seconds:.1f} s")
    assert end.code == 0, end.output[-3000:]
    matches = end.find()
    assert [(each["rank"], each["world"], each["sum"], each["falls"]) for each in matches] == [
        (rank, NODES, 3, True) for rank in range(count)
    ], end.output[-3000:]
    _parameters.update(each["parameters"] for each in matches)
    assert len(_parameters) == 1


def check_failed(launcher: str, end: Ended) -> None:
    """Check that the exit code is that of the failing rank, on the last node."""
    print(f"{launcher}: ended {end.seconds:.1f} s after a submission whose rank 2 fails at once")
    assert end.code == 7, end.output[-3000:]
    assert "First: rank 2 (node 2, local rank 0): exit code 7." in end.output


def check_met(end: Ended, *, count: int = NODES) -> None:
    """Check that each node printed its line, with the sum of all ranks."""
    assert end.code == 0, end.output[-3000:]
    assert [(each["rank"], each["sum"]) for each in end.find()] == [(rank, 3) for rank in range(count)], end.output


def check_cancelled(end: Ended) -> None:
    """Check that the job was cancelled and each node had time to save."""
    assert end.code == 130, end.output[-3000:]
    assert end.output.count("saved") == NODES, end.output[-3000:]
