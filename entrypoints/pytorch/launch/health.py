"""`health`: answers a container platform's probes, without loading torch unless it is asked to."""

import os
import subprocess
import sys

from .state import RUNNING, states, temporary_folder

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
    if arguments in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if arguments == ["--deep"]:
        return min(1, subprocess.run([sys.executable, "-c", _DEEP], stderr=subprocess.STDOUT, check=False).returncode)
    if arguments not in ([], ["--live"]):
        print(f"health: unknown option {' '.join(arguments)}; see `health --help`.", file=sys.stderr)
        return 64
    said = states(temporary_folder(os.environ))
    if not said:
        # Any other command than `run`: this probe runs, so the container does.
        print("healthy: the container runs")
        return 0
    last = said[-1]
    healthy = arguments == ["--live"] or last["phase"] == RUNNING
    print(f"{'healthy' if healthy else 'not ready'}: {last['phase']}{': ' + last['detail'] if last['detail'] else ''}")
    return 0 if healthy else 1
