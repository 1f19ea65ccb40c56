"""HTML page with a plan's results: speed, scaling, memory, and the comparison of places. Self-contained. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.outcome import BenchResult
from torchbake.benchmark.run import CaseResult, figure, milliseconds
from torchbake.core.sizes import human
from torchbake.report.html import own_file, render_template
from torchbake.report.svg import Part, bar, line


@dataclass(frozen=True, kw_only=True)
class PlaceResult:
    """The result of a place. ``against``: a batch takes so much longer than on the plan's first place; 0.1 is 10%."""

    place: str
    result: BenchResult
    against: float | None = None

    @property
    def memory(self) -> int | None:
        """Peak bytes: of the GPU if it ran on a GPU, else of the process."""
        used = self.result.memory
        return used.peak_gpu_bytes if self.result.device == "gpu" else used.peak_rss_bytes


@dataclass(frozen=True, kw_only=True)
class ExperimentGroup:
    """The results of one experiment on all places."""

    experiment: Experiment
    lines: tuple[PlaceResult, ...]


@dataclass(frozen=True, kw_only=True)
class Point:
    """The throughput of several devices, and their efficiency: 1.0 is ``devices`` times that of one device."""

    devices: int
    nodes: int
    throughput: float
    efficiency: float


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The scaling of one experiment on one place with the number of devices, of which the first is 1."""

    name: str
    place: str
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class Equipment:
    """The torch version and devices of a place; a place has several if its experiments differ in them."""

    place: str
    torch: str
    device: str


@dataclass(frozen=True, kw_only=True)
class PlanSummary:
    """The data of a page. ``traces`` are cases with a time series, ``missing`` are cases without a result."""

    groups: tuple[ExperimentGroup, ...]
    scaling: tuple[Scaling, ...]
    equipment: tuple[Equipment, ...]
    traces: tuple[CaseResult, ...]
    missing: tuple[CaseResult, ...]
    places: tuple[str, ...]
    hosts: tuple[str, ...]


def summarise(results: Sequence[CaseResult]) -> PlanSummary:
    """Summarise a run in its order, in which the cases of one experiment are adjacent."""
    measured = [(each, each.record.result) for each in results if each.record and each.record.result]
    places = tuple(dict.fromkeys(each.case.place.name for each in results))
    groups = [
        _group(experiment, [(each.case.place.name, result) for each, result in lines], places[0])
        for experiment, lines in groupby(measured, key=lambda pair: pair[0].case.experiment)
    ]
    return PlanSummary(
        groups=tuple(groups),
        scaling=tuple(_scaling(measured)),
        equipment=tuple(dict.fromkeys(_equipment(each.case.place.name, result) for each, result in measured)),
        traces=tuple(each for each in results if each.record and each.record.monitor),
        missing=tuple(each for each in results if not (each.record and each.record.result)),
        places=places,
        hosts=tuple(dict.fromkeys(each.record.where.host for each, _ in measured if each.record)),
    )


def _equipment(place: str, result: BenchResult) -> Equipment:
    """Name equal devices once, as the experiment has their number."""
    names = dict.fromkeys(result.devices or (result.host.cpu,))
    return Equipment(place=place, torch=result.versions.get("torch") or "", device=" + ".join(names))


def _group(experiment: Experiment, lines: Sequence[tuple[str, BenchResult]], first: str) -> ExperimentGroup:
    """Compare each place with the plan's first place, if that has a result."""
    base = next((result.time.median for place, result in lines if place == first), None)

    def compare(place: str, result: BenchResult) -> PlaceResult:
        against = result.time.median / base - 1 if base and place != first else None
        return PlaceResult(place=place, result=result, against=against)

    return ExperimentGroup(experiment=experiment, lines=tuple(compare(place, result) for place, result in lines))


def _scaling(results: Sequence[tuple[CaseResult, BenchResult]]) -> Iterator[Scaling]:
    """Find experiments on several numbers of devices. Each device has its own batch, so the work grows with them."""
    together: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
    for case_result, result in results:
        case = case_result.case.experiment
        name = f"{case.model} {case.phase} {case.dtype} batch {case.batch_size} {result.device}"
        devices = max(result.world, len(result.devices), 1)
        together.setdefault((name, case_result.case.place.name), {})[devices, result.nodes] = result.throughput
    for (name, place), speeds in together.items():
        one = speeds.get((1, 1))
        if len(speeds) > 1 and one:
            points = tuple(
                Point(devices=devices, nodes=nodes, throughput=speed, efficiency=speed / (devices * one))
                for (devices, nodes), speed in sorted(speeds.items())
            )
            yield Scaling(name=name, place=place, points=points)


def render_page(summary: PlanSummary, *, plan: str, date: str) -> str:
    """Return the page. ``date`` is an ISO time in UTC. Raise RenderError for a template that is broken."""
    values = {
        "summary": summary, "plan": plan, "made": date, "speed_bar": _speed_bar, "memory_bar": _memory_bar,
        "efficiency_bar": _efficiency_bar, "figures": _figures, "milliseconds": milliseconds, "figure": figure,
        "signed": lambda part: f"{part:+.1%}",
    }  # fmt: skip
    return render_template("benchmark", values, style=own_file("report.css") + own_file("benchmark.css"))


def _speed_bar(group: ExperimentGroup, one: PlaceResult) -> Markup:
    """Draw a throughput relative to the fastest of its experiment; other experiments are different work."""
    fastest = max(each.result.throughput for each in group.lines)
    return _bar(one.result.throughput, fastest, f"{figure(one.result.throughput)} samples a second")


def _memory_bar(group: ExperimentGroup, one: PlaceResult) -> Markup:
    most = max(each.memory or 0 for each in group.lines)
    return _bar(one.memory or 0, most, human(one.memory or 0))


def _efficiency_bar(point: Point) -> Markup:
    """Draw the efficiency relative to perfect scaling, which caches can exceed."""
    return _bar(min(1.0, point.efficiency), 1.0, f"{point.efficiency:.0%} of perfect scaling")


def _figures(trace: CaseResult) -> list[tuple[str, Markup, str]]:
    """Return a row for each figure of a time series: its name, its chart, and its maximum."""
    assert trace.record
    assert trace.record.monitor
    rows, moments, name = [], trace.record.monitor.seconds, f"{trace.case.experiment.name}, {trace.case.place.name}"
    for figure_name, values in trace.record.monitor.figures.items():
        title, form = _FIGURES[figure_name]
        most = form(max(value for value in values if value is not None))
        label = f"{title} of {name}, over {moments[-1]:.0f} s: at most {most}"
        rows.append((title, line(moments, values, title=label), most))
    return rows


_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "cpu_percent": ("CPU", "{:.0f}%".format),
    "memory_bytes": ("Memory", lambda value: human(int(value))),
    "gpu_percent": ("GPU", "{:.0f}%".format),
    "gpu_memory_bytes": ("GPU memory", lambda value: human(int(value))),
    "gpu_watts": ("GPU power", "{:.0f} W".format),
}


def _bar(size: float, whole: float, title: str) -> Markup:
    return bar((Part(size=size, kind="own"),), whole=whole, title=title, height=10)
