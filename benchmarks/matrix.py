"""Several images, cold: torchbake builds them in one run, against the Dockerfile tuned by hand for each in turn."""

import argparse
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cold import Cold
from benchmarks.measure import command, seconds, torchbake
from benchmarks.plans import make_plan
from torchbake.core.sizes import human
from torchbake.ui import console

_SECTOR = 512  # bytes, of /sys's figures: https://www.kernel.org/doc/html/latest/block/stat.html
_SECTORS = 6  # the field of sectors written
GOAL = "0.40"
OURS = "torchbake, all in one run"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds, and bytes that went to the disk of the engine's folder."""

    seconds: float
    sectors: int

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(seconds=self.seconds + other.seconds, sectors=self.sectors + other.sectors)


def matrix(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        images = [Cold(name, Path(tempfile.mkdtemp(dir=folder))) for name in args.selectors]
        disk = images[0].engine.folder
        images[0].empty()
        ours = _print(OURS, _cost(disk, lambda: torchbake("build", *args.selectors)))
        images[0].empty()
        costs = []
        for image in images:  # each uses the caches of uv and apt that earlier images filled
            costs.append(_print(f"tuned Dockerfile, {image.spec.id}", _cost(disk, image.tuned)))
            command("docker", "image", "rm", "--force", make_plan("tuned"))
    console.show_table(("way", "seconds", "of tuned", "written to disk", "of tuned"), rows(ours, costs))


def rows(ours: Cost, tuned: list[Cost]) -> list[tuple[str, ...]]:
    """Both ways beside each other; the tuned one is the sum of its builds."""
    total = sum(tuned[1:], tuned[0])
    return [
        (OURS, f"{ours.seconds:.1f} s", f"{ours.seconds / total.seconds:.2f}",
         human(ours.sectors), f"{ours.sectors / total.sectors:.2f}"),
        (f"tuned Dockerfile, {len(tuned)} builds", f"{total.seconds:.1f} s", "1.00", human(total.sectors), "1.00"),
        ("goal", "", GOAL, "", GOAL),
    ]  # fmt: skip


def _print(name: str, cost: Cost) -> Cost:
    console.say(f"{name}: {cost.seconds:.1f} s, {human(cost.sectors)} written")
    return cost


def _cost(disk: Path, work: Callable[[], object]) -> Cost:
    before = _write(disk)
    took = seconds(work)
    return Cost(seconds=took, sectors=_write(disk) - before)


def _write(folder: Path) -> int:
    """Bytes written so far to the disk below a folder."""
    command("sync")
    device = folder.stat().st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    return int(stat[_SECTORS]) * _SECTOR
