"""The time of `run` before and after a script, against `python` and `torchrun`, in one container."""

import argparse
import json

from benchmarks.measure import command
from torchbake.core.paths import TOOLKIT
from torchbake.engine.runner import run_words
from torchbake.matrix.project import load_project
from torchbake.matrix.select import select
from torchbake.ui import console

# Runs in the image: the commands run in turn; the first run of each is not counted.
_CLOCK = """
import json, statistics, subprocess, sys, time
ways, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
open("/tmp/nothing.py", "w").close()
took = {way: [] for way in ways}
for turn in range(rounds + 1):
    for way in ways:
        began = time.perf_counter()
        subprocess.run([*way.split(), "/tmp/nothing.py"], check=True, capture_output=True)
        took[way] += [time.perf_counter() - began] if turn else []
print(json.dumps({way: statistics.median(seconds) for way, seconds in took.items()}))
"""
_PLAIN = "python"
_WAYS = (_PLAIN, "run", "env NNODES=1 run", "torchrun --standalone")


def start(args: argparse.Namespace) -> None:
    """Print the median time of each command with an empty script, and the difference to `python`."""
    project = load_project(TOOLKIT / "matrix.yaml")
    for spec in select(project.expansion.specs, args.selectors).specs:
        image = f"{spec.repository}:{spec.id}"
        inside = ("python", "-c", _CLOCK, json.dumps(_WAYS), str(args.rounds))
        took = json.loads(command(*run_words({}), "--env", "TORCHBAKE_BANNER=0", image, *inside))
        rows = [(way, f"{took[way]:.3f} s", f"{took[way] - took[_PLAIN]:.3f} s") for way in _WAYS]
        console.show_table((spec.id, f"median of {args.rounds}", "over python"), rows)
