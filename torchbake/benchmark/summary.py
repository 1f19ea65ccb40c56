"""What a plan has shown, put together for its page: speed, scaling, memory, and places against each other. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.outcome import Result, Series
from torchbake.benchmark.run import Done


@dataclass(frozen=True, kw_only=True)
class Line:
    """One place's result. ``against`` is how much longer a batch takes than on the plan's first place: 0.1 is 10%."""

    place: str
    result: Result
    against: float | None = None

    @property
    def memory(self) -> int | None:
        """Peak bytes: of the GPU where it ran on one, else of the process."""
        used = self.result.memory
        return used.peak_gpu_bytes if self.result.device == "gpu" else used.peak_rss_bytes


@dataclass(frozen=True, kw_only=True)
class Group:
    """One experiment on every place where it was measured."""

    experiment: Experiment
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class Point:
    """So many devices on so many nodes, and which part of so many times one device's throughput they reach."""

    devices: int
    nodes: int
    throughput: float
    efficiency: float


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """One experiment on one place, on several numbers of devices, one of them 1."""

    name: str
    place: str
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The resources of an experiment over time, with or without a result."""

    name: str
    place: str
    series: Series


@dataclass(frozen=True, kw_only=True)
class Equipment:
    """What a place measured with; a place whose experiments had not the same has several."""

    place: str
    torch: str
    device: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All of a page. ``missing`` are cases without a result, with the reason."""

    groups: tuple[Group, ...]
    scaling: tuple[Scaling, ...]
    equipment: tuple[Equipment, ...]
    traces: tuple[Trace, ...]
    missing: tuple[Done, ...]
    places: tuple[str, ...]
    hosts: tuple[str, ...]


def summarise(done: Sequence[Done]) -> Summary:
    """Of a run, in its order: what is of one experiment stands side by side there."""
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
        traces=tuple(
            Trace(name=each.case.experiment.name, place=each.case.place.name, series=each.record.monitor)
            for each in done
            if each.record and each.record.monitor
        ),
        missing=tuple(each for each in done if not (each.record and each.record.result)),
        places=places,
        hosts=tuple(dict.fromkeys(each.record.where.host for each, _ in measured if each.record)),
    )


def _equipment(place: str, result: Result) -> Equipment:
    """Devices of the same name are said once: how many they are, the experiment says."""
    names = dict.fromkeys(result.devices or (result.host.cpu,))
    return Equipment(place=place, torch=result.versions.get("torch") or "", device=" + ".join(names))


def _group(experiment: Experiment, lines: Sequence[tuple[str, Result]], first: str) -> Group:
    """Where the plan's first place has no result, nothing stands against it."""
    base = next((result.time.median for place, result in lines if place == first), None)
    return Group(
        experiment=experiment,
        lines=tuple(
            Line(place=place, result=result, against=result.time.median / base - 1 if base and place != first else None)
            for place, result in lines
        ),
    )


def _scaling(measured: Sequence[tuple[Done, Result]]) -> Iterator[Scaling]:
    """Batches are per device, so the work grows with their number."""
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
