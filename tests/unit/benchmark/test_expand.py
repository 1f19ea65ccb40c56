"""A plan's cases in a fair order, excluded cases with their reasons, and the files of experiments."""

from pathlib import Path

import pytest

from tests.unit.benchmark.cases import PLAN, document_of, experiment, plan_of
from torchbake.benchmark.expand import PlaceName, PlanCase, comparable, demand_files, expand, own_bench, with_source
from torchbake.errors import PlanError

PLACES = (
    PlaceName(kind="image", word="cpu", name="2.13.0-cpu-runtime-debian12"),
    PlaceName(kind="host", word="foo_bar", name="foo_bar"),
)


def cases(more: str = "") -> tuple[PlanCase, ...]:
    return expand(plan_of(PLAN + more), PLACES, document_of(PLAN + more))


def test_each_axis_meets_each_and_places_are_side_by_side() -> None:
    matches = cases()
    assert len(matches) == 2 * 2 * 2 * 2
    assert len({(case.experiment.name, case.place.name) for case in matches}) == len(matches)
    assert [case.place.name for case in matches[:4]] == [place.name for place in PLACES] * 2
    assert matches[0].experiment.name == "resnet50 training float32 batch 16 cpu"


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


def test_a_model_file_is_known_by_content_and_data_by_path(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text("class Net: ...\n")
    net = experiment("mine.py:Net")
    first, second = (with_source(net, tmp_path / name) for name in ("a", "b"))
    assert first == second != net
    (tmp_path / "b/mine.py").write_text("class Net: pass\n")
    assert with_source(net, tmp_path / "b") != first
    data = experiment(data_dir="data")
    assert with_source(data, tmp_path / "a") != with_source(data, tmp_path / "b")
    assert with_source(experiment(data_dir="/data"), tmp_path / "a").source.data == "/data"


def test_a_published_model_on_made_up_data_has_no_files(tmp_path: Path) -> None:
    assert with_source(experiment(), tmp_path) == experiment()
    assert with_source(experiment("gone.py:Net"), tmp_path).source.model == ""


def test_the_toolkits_bench_has_a_digest() -> None:
    assert own_bench().startswith("sha256:")


def test_files_that_are_missing_are_told_with_their_place(tmp_path: Path) -> None:
    text = "models: [a, 'mine.py:Net']\ndata_dir: data\n"
    with pytest.raises(PlanError) as caught:
        demand_files(plan_of(text), document_of(text), tmp_path)
    assert f"plan.yaml:1: models.1: {tmp_path}/mine.py is not a file" in caught.value.message
    assert f"plan.yaml:2: data_dir: {tmp_path}/data is not a folder" in caught.value.message
    (tmp_path / "data").mkdir()
    (tmp_path / "mine.py").touch()
    demand_files(plan_of(text), document_of(text), tmp_path)


def test_files_of_other_machines_are_not_looked_for_here(tmp_path: Path) -> None:
    text = "models: ['mine.py:Net']\ndata_dir: /data/there\nhosts: [{ssh: foo}]\n"
    demand_files(plan_of(text), document_of(text), tmp_path)
    with pytest.raises(PlanError):
        demand_files(plan_of(text + "images: [cpu]\n"), document_of(text + "images: [cpu]\n"), tmp_path)
