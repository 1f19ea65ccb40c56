"""Kill builds, their engine, or both at random moments, and check what follows. The program starts its own engine.

One JSON line for each kill, then a summary. A failure keeps the log of the killed build. The same seed and numbers kill
in the same order, after the same part of the usual time.
"""

import argparse
import json
import random
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from tests.e2e.conftest import ROOT
from tests.kills.engine import KilledEngine
from tests.kills.project import IMAGES, Project
from tests.kills.rounds import Kill, Rounds

_FORGET: tuple[tuple[str, ...], ...] = ((), ("layout",), ("layers",), ("layers", "layout"))


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    argument = _arguments()
    seed = argument.seed if argument.seed is not None else random.SystemRandom().randrange(10**6)
    folder: Path = argument.folder.resolve()
    folder.mkdir(parents=True)
    project = Project.make(argument.image, folder, argument.bases, argument.layers)
    with KilledEngine(folder / "engine", ROOT / ".torchbake/tools") as engine:
        rounds = Rounds(project=project, engine=engine, evidence=folder / "evidence", usual={})
        good = rounds.undisturbed({kill.forget for kill in kills_of(argument, seed)})
        results = []
        for kill in kills_of(argument, seed):
            results.append(rounds.round(kill, good))
            print(json.dumps({"seed": seed, **asdict(kill), **asdict(results[-1])}), flush=True)
    failed = sum(bool(result.problems) for result in results)
    print(json.dumps({"seed": seed, "image": argument.image, "kills": len(results), "failed": failed}), flush=True)
    return 1 if failed else 0


def kills_of(argument: argparse.Namespace, seed: int) -> list[Kill]:
    """Return the kills of a seed, in their order."""
    dice = random.Random(seed)
    targets = ["build"] * argument.builds + ["engine"] * argument.engine + ["both"] * argument.both
    dice.shuffle(targets)
    return [
        Kill(
            number=number,
            target=target,
            part=round(dice.random(), 3),
            group=dice.random() < 0.5,
            forget=dice.choice(_FORGET if argument.image != "cpu" else _FORGET[:2]),
        )
        for number, target in enumerate(targets)
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("folder", type=Path, help="a new folder, for the engine, the project and the evidence")
    parser.add_argument("--image", choices=IMAGES, default="stack")
    parser.add_argument("--builds", type=int, default=70)
    parser.add_argument("--engine", type=int, default=70)
    parser.add_argument("--both", type=int, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument(
        "--bases", type=Path, default=ROOT / ".torchbake/bases", help="the folder of bootstrapped bases"
    )
    parser.add_argument("--layers", type=Path, help="a store of packed layers to begin with a copy of")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
