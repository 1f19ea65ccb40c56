"""Files behind an experiment: what is another file is another experiment, under whatever name."""

from pathlib import Path

import pytest

from tests.unit.benchmark.cases import document_of, experiment, plan_of
from torchbake.benchmark.sources import demand_files, own_bench, with_source
from torchbake.errors import PlanError


def test_a_models_file_is_known_by_its_content_and_data_by_its_place(tmp_path: Path) -> None:
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
