"""Files behind an experiment: what is another file is another experiment, under whatever name."""

from pathlib import Path

from tests.unit.benchmark.cases import experiment
from torchbake.benchmark.sources import own_bench, with_source


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
