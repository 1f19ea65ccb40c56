"""A plan's cases: all of them, in an order that is fair, and each that is left out with its reason."""

import pytest

from tests.unit.benchmark.cases import PLAN, document_of, plan_of
from torchbake.benchmark.expand import Case, Named, comparable, expand
from torchbake.errors import PlanError

PLACES = (
    Named(kind="image", word="cpu", name="2.13.0-cpu-runtime-debian12"),
    Named(kind="host", word="foo_bar", name="foo_bar"),
)


def cases(more: str = "") -> tuple[Case, ...]:
    return expand(plan_of(PLAN + more), PLACES, document_of(PLAN + more))


def test_each_axis_meets_each_and_places_are_side_by_side() -> None:
    found = cases()
    assert len(found) == 2 * 2 * 2 * 2
    assert len({(case.experiment.name, case.place.name) for case in found}) == len(found)
    assert [case.place.name for case in found[:4]] == [place.name for place in PLACES] * 2
    assert found[0].experiment.name == "resnet50 training float32 batch 16 cpu"


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ("model: vgg19", 8),
        ("model: vgg19, batch_size: 64", 4),
        ("model: vgg19, batch_size: [16, 64], phase: training", 4),
        ("image: cpu", 8),
        ("image: 2.13.0-cpu-runtime-debian12, model: vgg19", 4),
        ("host: foo_bar, gpus: 0", 8),
    ],
)
def test_a_rule_takes_what_all_of_its_keys_hold_for(rule: str, count: int) -> None:
    out = [case for case in cases(f"exclude: [{{{rule}, reason: a good reason}}]\n") if case.excluded]
    assert len(out) == count
    assert {case.excluded for case in out} == {"a good reason"}


@pytest.mark.parametrize("rule", ["model: vgg16", "image: cuda", "image: cpu, host: foo_bar", "gpus: 1"])
def test_a_rule_that_takes_nothing_is_a_mistake(rule: str) -> None:
    with pytest.raises(PlanError, match=r"plan.yaml:5: exclude.0: excludes nothing"):
        cases(f"exclude: [{{{rule}, reason: a good reason}}]\n")


def test_a_plan_of_nothing_is_a_mistake() -> None:
    with pytest.raises(PlanError, match="leaves no experiment"):
        cases("exclude: [{model: [resnet50, vgg19], reason: a good reason}]\n")


def test_two_images_are_compared_where_neither_is_excluded() -> None:
    plan = plan_of(PLAN + "exclude: [{model: vgg19, reason: a good reason}, {host: foo_bar, reason: another one}]\n")
    assert {each.model for each in comparable(plan, PLACES[:1])} == {"resnet50"}
    assert comparable(plan, PLACES) == ()


def test_gpus_of_the_cpu_are_processes() -> None:
    names = [each.name for each in comparable(plan_of("models: a\ngpus: [0, 1, 2]\ndevice: cpu\n"), ())]
    assert names == [f"a training float32 batch 16 {device}" for device in ("cpu", "1 cpu", "2 cpu")]
