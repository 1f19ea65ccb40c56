"""The start of a machine without images: the pull from a registry on the same host, and then torch's first tensor."""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cold import OURS, TUNED, Cold, in_turn
from benchmarks.measure import command, seconds
from benchmarks.plans import make_plan
from benchmarks.second_engine import second_engine
from tests.e2e.registries import Running, registry
from torchbake.core.paths import cache_folder
from torchbake.ui import console

NAIVE = "naive Dockerfile, gzip"
GOALS = ("goal", "", "0.45", "0.80", "", "0.30")
START_GOALS = ("goal", "", "0.90", "", "1.00", "", "")
_PULLS = ("way", "pull", "of naive", "of tuned", "the next image", "of its first")
_STARTS = (
    "way", "to the first tensor, cold", "of tuned", "warm", "of tuned", "of it torch, cold", "torch, warm"
)  # fmt: skip
_TENSOR = "import time; t = time.perf_counter(); import torch; torch.ones(1).sum(); print(time.perf_counter() - t)"
_WARM = 5  # starts of a container whose files are in memory

# The base is compressed by zstd: its layers are compressed again too, in a format of every engine.
_GZIP = "type=image,compression=gzip,force-compression=true,oci-mediatypes=true"
_DROP = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True, kw_only=True)
class Start:
    """The seconds of a `docker run`, and the part of torch's import and first tensor."""

    whole: float
    torch: float


@dataclass(frozen=True, kw_only=True)
class Round:
    """The seconds of one machine; ``following`` is the pull of the next image if there is one."""

    pull: float
    following: float | None
    cold: Start
    warm: tuple[Start, ...]


def pull(args: argparse.Namespace) -> None:
    """Build each image, push it to a registry, and pull it into new engines in turn. Needs root."""
    only_as_root("pull")
    with tempfile.TemporaryDirectory() as folder, registry(cache_folder() / "tools", Path(folder, "registry")) as there:
        served = _serve(args.selectors[:2], Path(folder), there)
        matches = pulled(served, args.rounds, there)
    title = f"{' and '.join(args.selectors[:2])}, {args.rounds} rounds"
    console.show_table(_PULLS, pull_rows(matches), title=title)
    show_starts(matches, title)


def only_as_root(name: str) -> None:
    if os.geteuid():
        sys.exit(f"`{name}` starts a second engine and empties the page cache: run it as root.")


def _serve(names: Sequence[str], folder: Path, there: Running) -> dict[str, list[str]]:
    """Build and push the images, remove them from the engine, and return their names in the registry."""
    served: dict[str, list[str]] = {}
    for place, name in enumerate(names):
        bench = Cold(name, folder / str(place))
        bench.folder.mkdir()
        for way, (make, ref) in _ways(bench).items():
            bench.empty()
            make()
            served.setdefault(way, []).append(put(ref, way, place, there))
            console.say(f"{way}: {name} is in the registry")
        bench.empty()
    return served


def _ways(bench: Cold) -> Mapping[str, tuple[Callable[[], float], str]]:
    return {
        NAIVE: (lambda: bench.naive(_GZIP), make_plan("naive")),
        TUNED: (bench.tuned, make_plan("tuned")),
        OURS: (bench.build, bench.ref),
    }


def put(ref: str, way: str, place: int, there: Running) -> str:
    """Push an image, and return its name in the registry."""
    target = f"{there.host}/bench/{place}:{way.split(maxsplit=1)[0]}"
    command("docker", "tag", ref, target)
    command("docker", "push", "--quiet", target)
    return target


def pulled(served: Mapping[str, Sequence[str]], rounds: int, there: Running) -> dict[str, list[Round]]:
    matches: dict[str, list[Round]] = {}
    for number in range(rounds):
        for way, refs in in_turn(served, number):
            matches.setdefault(way, []).append(measured(refs, there))
            console.say(f"{way}: pulled in {matches[way][-1].pull:.1f} s")
    return matches


def measured(refs: Sequence[str], there: Running) -> Round:
    """Measure the pull of the first image into an empty engine, and of the next; the registry's blobs are in memory."""
    for blob in there.folder.rglob("data"):
        _read(blob)
    with second_engine(containerd_store=True) as node:
        pulls = [seconds(lambda ref=ref: command("docker", "-H", node, "pull", "-q", ref)) for ref in refs]  # type: ignore[misc]
        os.sync()
        _DROP.write_text("3")
        cold, *warm = (_start(node, refs[0]) for _ in range(1 + _WARM))
    return Round(pull=pulls[0], following=pulls[1] if pulls[1:] else None, cold=cold, warm=tuple(warm))


def _read(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(1 << 22):
            pass


def _start(node: str, ref: str) -> Start:
    output = list[str]()
    words = ("docker", "-H", node, "run", "--rm", "--network=none", ref, "python3", "-c", _TENSOR)
    whole = seconds(lambda: output.append(command(*words)))
    return Start(whole=whole, torch=float(output[0].split()[-1]))


def pull_rows(matches: Mapping[str, Sequence[Round]]) -> list[tuple[str, ...]]:
    """Return the medians, with ratios to the naive and to the tuned Dockerfile; the goals are last."""
    first = {way: statistics.median(one.pull for one in rounds) for way, rounds in matches.items()}
    table = list[tuple[str, ...]]()
    for way, rounds in matches.items():
        following = [one.following for one in rounds if one.following is not None]
        after = statistics.median(following) if following else None
        table.append(
            (way, f"{first[way]:.1f} s", f"{first[way] / first[NAIVE]:.2f}", f"{first[way] / first[TUNED]:.2f}",
             "" if after is None else f"{after:.1f} s", "" if after is None else f"{after / first[way]:.2f}")
        )  # fmt: skip
    return [*table, GOALS]


def show_starts(matches: Mapping[str, Sequence[Round]], title: str) -> None:
    console.show_table(_STARTS, start_rows(matches), title=f"docker run, {title}")


def start_rows(matches: Mapping[str, Sequence[Round]]) -> list[tuple[str, ...]]:
    cold = {way: _median([one.cold for one in rounds]) for way, rounds in matches.items()}
    warm = {way: _median([start for one in rounds for start in one.warm]) for way, rounds in matches.items()}
    table = [
        (way, f"{cold[way].whole:.2f} s", f"{cold[way].whole / cold[TUNED].whole:.2f}", f"{warm[way].whole:.2f} s",
         f"{warm[way].whole / warm[TUNED].whole:.2f}", f"{cold[way].torch:.2f} s", f"{warm[way].torch:.2f} s")
        for way in matches
    ]  # fmt: skip
    return [*table, START_GOALS]


def _median(starts: Sequence[Start]) -> Start:
    return Start(
        whole=statistics.median(start.whole for start in starts),
        torch=statistics.median(start.torch for start in starts),
    )
