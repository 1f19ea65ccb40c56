"""Summary of a plan's results for its page: speed, scaling, memory, and the comparison of places. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.outcome import Result
from torchbake.benchmark.run import Done


@dataclass(frozen=True, kw_only=True)
class Line:
    """The result of a place. ``against``: a batch takes so much longer than on the plan's first place; 0.1 is 10%."""

    place: str
    result: Result
    against: float | None = None

    @property
    def memory(self) -> int | None:
        """Peak bytes: of the GPU if it ran on a GPU, else of the process."""
        used = self.result.memory
        return used.peak_gpu_bytes if self.result.device == "gpu" else used.peak_rss_bytes


@dataclass(frozen=True, kw_only=True)
class Group:
    """The results of one experiment on all places."""

    experiment: Experiment
    lines: tuple[Line, ...]


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
class Summary:
    """The data of a page. ``traces`` are cases with a time series, ``missing`` are cases without a result."""

    groups: tuple[Group, ...]
    scaling: tuple[Scaling, ...]
    equipment: tuple[Equipment, ...]
    traces: tuple[Done, ...]
    missing: tuple[Done, ...]
    places: tuple[str, ...]
    hosts: tuple[str, ...]


def summarise(done: Sequence[Done]) -> Summary:
    """Summarise a run in its order, in which the cases of one experiment are adjacent."""
    measured = [(each, each.record.result) for each in done if each.record and each.record.result]
    places = tuple(dict.fromkeys(each.case.place.name for each in done))
    groups = [
        _group(experiment, [(each.case.place.name, result) for each, result in lines], places[0])
        for experiment, lines in groupby(measured, key=lambda pair: pair[0].case.experiment)
    ]
    return Summary(
        groups=tuple(groups),
        scaling=tuple(_scaling(measured)),
        equipment=tuple(dict.fromkeys(_equipment(each.case.place.name, result) for each, result in measured)),
        traces=tuple(each for each in done if each.record and each.record.monitor),
        missing=tuple(each for each in done if not (each.record and each.record.result)),
        places=places,
        hosts=tuple(dict.fromkeys(each.record.where.host for each, _ in measured if each.record)),
    )


def _equipment(place: str, result: Result) -> Equipment:
    """Name equal devices once, as the experiment has their number."""
    names = dict.fromkeys(result.devices or (result.host.cpu,))
    return Equipment(place=place, torch=result.versions.get("torch") or "", device=" + ".join(names))


def _group(experiment: Experiment, lines: Sequence[tuple[str, Result]], first: str) -> Group:
    """Compare each place with the plan's first place, if that has a result."""
    base = next((result.time.median for place, result in lines if place == first), None)

    def line(place: str, result: Result) -> Line:
        against = result.time.median / base - 1 if base and place != first else None
        return Line(place=place, result=result, against=against)

    return Group(experiment=experiment, lines=tuple(line(place, result) for place, result in lines))


def _scaling(measured: Sequence[tuple[Done, Result]]) -> Iterator[Scaling]:
    """Find experiments on several numbers of devices. Each device has its own batch, so the work grows with them."""
    together: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
    for done, result in measured:
        case = done.case.experiment
        name = f"{case.model} {case.phase} {case.dtype} batch {case.batch_size} {result.device}"
        devices = max(result.world, len(result.devices), 1)
        together.setdefault((name, done.case.place.name), {})[devices, result.nodes] = result.throughput
    for (name, place), speeds in together.items():
        one = speeds.get((1, 1))
        if len(speeds) > 1 and one:
            points = tuple(
                Point(devices=devices, nodes=nodes, throughput=speed, efficiency=speed / (devices * one))
                for (devices, nodes), speed in sorted(speeds.items())
            )
            yield Scaling(name=name, place=place, points=points)
