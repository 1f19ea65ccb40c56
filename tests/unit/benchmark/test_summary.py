"""Summary of a plan: places against the first, devices against one device, and cases without a result."""

import pytest

from tests.unit.benchmark.cases import experiment, result
from torchbake.benchmark.expand import Case, Experiment, Named
from torchbake.benchmark.outcome import Result
from torchbake.benchmark.records import Record, Where
from torchbake.benchmark.run import Done
from torchbake.benchmark.summary import Equipment, Summary, summarise


def done(what: Experiment, found: Result | str, place: str = "a") -> Done:
    case = Case(experiment=what, place=Named(kind="image", word=place, name=place))
    if isinstance(found, str):
        return Done(case=case, state="failed", reason=found)
    where = Where(kind="image", name=place, digest=f"sha256:{place}", host="here")
    record = Record(experiment=what, where=where, command="bench", started="", seconds=1, result=found)
    return Done(case=case, state="measured", record=record)


def some() -> Summary:
    four = result(0.125, world=4, throughput=512.0, devices=["x"] * 4, device="gpu", memory={"peak_gpu_bytes": 7})
    one = result(0.1, throughput=160.0, device="gpu", memory={"peak_rss_bytes": 5, "peak_gpu_bytes": 6})
    return summarise([
        done(experiment(), result(0.1)),
        done(experiment(), result(0.125), "<b>"),
        done(experiment(gpus=1), one),
        done(experiment(gpus=4), four),
        done(experiment("vgg19"), "Out of memory & time."),
    ])  # fmt: skip


def test_places_stand_against_the_first() -> None:
    first = some().groups[0]
    assert [(line.place, line.against) for line in first.lines] == [("a", None), ("<b>", pytest.approx(0.25))]


def test_nothing_stands_against_a_first_place_without_a_result() -> None:
    found = summarise([
        done(experiment(), "It failed."), done(experiment(), result(0.1), "b"), done(experiment(), result(0.2), "c"),
    ])  # fmt: skip
    assert [(line.place, line.against) for line in found.groups[0].lines] == [("b", None), ("c", None)]


def test_memory_is_that_of_the_device() -> None:
    assert [line.memory for group in some().groups for line in group.lines] == [10**9, 10**9, 6, 7]


def test_efficiency_is_against_as_many_times_one_device() -> None:
    (scaling,) = some().scaling
    assert scaling.name == "resnet50 training float32 batch 16 gpu"
    assert [(point.devices, point.efficiency) for point in scaling.points] == [(1, 1.0), (4, 0.8)]


def test_without_one_device_there_is_nothing_to_scale_from() -> None:
    assert summarise([done(experiment(gpus=4), result(world=4, device="gpu", devices=["x"] * 4))]).scaling == ()


def test_nodes_scale_too() -> None:
    found = summarise([
        done(experiment(), result(0.1)),
        done(experiment(nodes=2), result(0.125, world=2, nodes=2, throughput=256.0)),
    ])  # fmt: skip
    (scaling,) = found.scaling
    assert [(point.devices, point.nodes, point.efficiency) for point in scaling.points] == [(1, 1, 1.0), (2, 2, 0.8)]


def test_what_has_no_result_is_told() -> None:
    assert [(one.case.experiment.model, one.reason) for one in some().missing] == [("vgg19", "Out of memory & time.")]
    assert (some().places, some().hosts) == (("a", "<b>"), ("here",))


def test_what_a_place_measured_with_is_told_once() -> None:
    assert some().equipment == (
        Equipment(place="a", torch="2.13.0+cpu", device="a CPU"),
        Equipment(place="<b>", torch="2.13.0+cpu", device="a CPU"),
        Equipment(place="a", torch="2.13.0+cpu", device="x"),
    )
