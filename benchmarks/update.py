"""An update of an image's base: the time to build the image again, and to pull it."""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.cold import OURS, TUNED, Cold
from benchmarks.measure import command, torchbake
from benchmarks.plans import make_plan
from benchmarks.pull import Round, only_as_root, pulled, put, show_starts
from tests.e2e.registries import Running, registry
from torchbake.build.base_image import find_base
from torchbake.core.paths import TOOLKIT, cache_folder
from torchbake.matrix.project import Project
from torchbake.ui import console

REPOSITORY = "torchbake-bench/updated"
# As in an official base: one layer, which another release replaces.
BASE = """\
FROM base AS before
RUN echo updated > /etc/torchbake-bench
FROM scratch
COPY --from=before / /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["bash"]
"""
GOALS = ("goal", "", "", "0.35", "", "", "", "0.30", "")
_HEAD = ("way", "cold", "base updated", "of its cold", "of tuned", "pull", "base updated", "of its first", "of tuned")


@dataclass(frozen=True, kw_only=True)
class Builds:
    """The seconds of a cold build, and of the next build on the updated base with warm caches."""

    cold: float
    updated: float


def update(args: argparse.Namespace) -> None:
    """Build each image and its successor, and pull both into new engines in turn. Needs root."""
    only_as_root("update")
    with tempfile.TemporaryDirectory() as folder, registry(cache_folder() / "tools", Path(folder, "registry")) as there:
        bench = Cold(args.selectors[0], Path(folder))
        builds, served = _build(bench, updated(bench, there), there)
        bench.empty()
        matches = pulled(served, args.rounds, there)
    title = f"{args.selectors[0]}, {args.rounds} rounds of pulls"
    console.show_table(_HEAD, rows(builds, matches), title=title)
    show_starts(matches, title)


def updated(bench: Cold, there: Running) -> Project:
    """Make a project with the image on another base of the same Debian, in the registry."""
    base, image = find_base(bench.spec.base, bench.project.state), f"{there.host}/bench/base:updated"
    assert base
    context = bench.folder / "base"
    context.mkdir()
    (context / "Dockerfile").write_text(BASE)
    words = (f"--tag={image}", f"--build-context=base={base.context(bench.project.state)}", str(context))
    command("docker", "buildx", "build", "--provenance=false", "--push", *words)
    project = bench.other("updated", with_base((TOOLKIT / "matrix.yaml").read_text(), bench.spec.base.name, image))
    torchbake("base", bench.spec.id, "--matrix", str(project.root / "matrix.yaml"))
    return project


def with_base(matrix: str, name: str, image: str) -> str:
    """Return the matrix with another image for one base, and another repository."""
    document = yaml.safe_load(matrix)
    document["repository"] = REPOSITORY
    document["bases"][name]["image"] = image
    return str(yaml.safe_dump(document, sort_keys=False))


def _build(bench: Cold, after: Project, there: Running) -> tuple[dict[str, Builds], dict[str, list[str]]]:
    """Build both images each way; return the times, and the images' names in the registry."""
    ways: Mapping[str, Sequence[tuple[Callable[[], float], str]]] = {
        TUNED: ((bench.tuned, make_plan("tuned")), (lambda: bench.tuned(after), make_plan("tuned"))),
        OURS: ((bench.build, bench.ref), (lambda: bench.build(after), f"{REPOSITORY}:{bench.spec.id}")),
    }
    times, served = dict[str, Builds](), dict[str, list[str]]()
    for way, steps in ways.items():
        bench.empty()
        took = []
        for place, (make, ref) in enumerate(steps):
            took.append(make())
            console.say(f"{way}: {took[-1]:.1f} s")
            served.setdefault(way, []).append(put(ref, way, place, there))
        times[way] = Builds(cold=took[0], updated=took[1])
    return times, served


def rows(builds: Mapping[str, Builds], matches: Mapping[str, Sequence[Round]]) -> list[tuple[str, ...]]:
    """Return the seconds of builds and the medians of pulls; the goals are last."""
    first = {way: statistics.median(one.pull for one in matches[way]) for way in builds}
    next_one = {way: statistics.median(one.following or 0 for one in matches[way]) for way in builds}
    table = [
        (
            way, f"{took.cold:.1f} s", f"{took.updated:.1f} s", f"{took.updated / took.cold:.2f}",
            f"{took.updated / builds[TUNED].updated:.2f}", f"{first[way]:.1f} s", f"{next_one[way]:.1f} s",
            f"{next_one[way] / first[way]:.2f}", f"{next_one[way] / next_one[TUNED]:.2f}",
        )
        for way, took in builds.items()
    ]  # fmt: skip
    return [*table, GOALS]
