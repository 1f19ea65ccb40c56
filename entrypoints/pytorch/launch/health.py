"""`health`: answers a container platform's probes, without loading torch unless it is asked to.

It imports as little as it can: a probe runs every few seconds, on a node that has better things to do.
"""

import json
import os
import sys

PREFIX = "torchbake-run-"  # of each `run`'s folder in the temporary folder
WAITING, RUNNING, ENDING = "waiting", "running", "ending"

USAGE = """\
usage: health [--live | --deep]

Exit code 0: healthy; 1: not, with the reason on stdout; 64: wrong option.

  (nothing)    ready: the command runs and, when distributed, all nodes have come together
  --live       alive: `run` lives; waiting for other nodes is no reason to be started again
  --deep       torch imports and adds two numbers, on the GPU where the container has one (seconds: for start-up)

examples (Kubernetes):
  livenessProbe:  {exec: {command: [health, --live]}}
  readinessProbe: {exec: {command: [health]}}
  startupProbe:   {exec: {command: [health, --deep]}, timeoutSeconds: 60}
"""

_DEEP = """
import torch
device = "cuda" if torch.version.cuda and torch.cuda.is_available() else "cpu"
assert int((torch.ones(2, device=device) + 1).sum()) == 4, f"wrong sum on {device}"
print(f"healthy: torch {torch.__version__} computes on {device}")
"""


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if arguments in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if arguments == ["--deep"]:
        os.dup2(1, 2)
        os.execv(sys.executable, [sys.executable, "-c", _DEEP])
    if arguments not in ([], ["--live"]):
        print(f"health: unknown option {' '.join(arguments)}; see `health --help`.", file=sys.stderr)
        return 64
    said = states(os.environ.get("TMPDIR") or "/tmp")
    if not said:
        # Any other command than `run`: this probe runs, so the container does.
        print("healthy: the container runs")
        return 0
    last = said[-1]
    healthy = arguments == ["--live"] or last["phase"] == RUNNING
    detail = f": {last['detail']}" if last["detail"] else ""
    print(f"{'healthy' if healthy else 'not ready'}: {last['phase']}{detail}")
    return 0 if healthy else 1


def states(temporary: str) -> list[dict[str, str]]:
    """What every `run` that lives says: ``pid``, ``phase``, ``detail``."""
    said = []
    for name in sorted(os.listdir(temporary)) if os.path.isdir(temporary) else []:  # noqa: PTH112, PTH208 - pathlib takes 6 ms
        if name.startswith(PREFIX):
            try:
                with open(f"{temporary}/{name}/state.json") as file:  # noqa: PTH123
                    values = json.load(file)
            except (OSError, ValueError):
                continue
            if is_alive(values["pid"]):
                said.append(values)
    return said


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
