"""Records: saved one by one, found again by experiment and place, complete after any end of a run."""

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.unit.benchmark.cases import experiment, result
from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.outcome import Series
from torchbake.benchmark.records import Records, RunRecord, Where, key_of, write_csv, write_monitor

HERE = Where(kind="image", name="a", digest="sha256:a", host="here")


def record(what: Experiment | None = None, where: Where = HERE, reason: str = "") -> RunRecord:
    return RunRecord(
        experiment=what or experiment(), where=where, command="bench", started="2026-11-23T00:00:00+00:00",
        seconds=1.5, reason=reason, result=None if reason else result(),
    )  # fmt: skip


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(path=tmp_path / "reports/benchmark/results.jsonl")


def test_what_is_added_is_there_again(records: Records) -> None:
    assert records.all() == []
    first, second = record(), record(experiment("vgg19"), reason="Out of memory.")
    records.add(first)
    records.add(second)
    assert records.all() == [first, second]
    assert records.results() == {first.key: first}


@pytest.mark.parametrize("torn", ['{"experiment": {"model": "resn', "\x00\x00", "null\n", "[1]\n"])
def test_a_torn_line_costs_itself_alone(records: Records, torn: str) -> None:
    records.add(record())
    with records.path.open("a") as file:
        file.write(torn)
    records.add(record(experiment("vgg19")))
    assert [each.experiment.model for each in records.all()] == ["resnet50", "vgg19"]


def test_an_image_is_known_by_its_digest_and_a_host_by_its_name() -> None:
    assert key_of(experiment(), HERE) == key_of(experiment(), HERE.model_copy(update={"name": "another tag"}))
    for change in ({"digest": "sha256:b"}, {"host": "there"}, {"bench": "sha256:c"}):
        assert key_of(experiment(), HERE) != key_of(experiment(), HERE.model_copy(update=change))
    host = Where(kind="host", name="foo", host="foo")
    assert key_of(experiment(), host) != key_of(experiment(), host.model_copy(update={"name": "bar"}))


@pytest.mark.parametrize("change", [{"batch_size": 32}, {"num_batches": 7}, {"env": {"A": "b"}}, {"gpus": 1}])
def test_another_experiment_is_another_key(change: dict[str, Any]) -> None:
    assert key_of(experiment(**change), HERE) != key_of(experiment(), HERE)


def test_the_table_has_a_row_for_each(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    what = experiment(num_batches=7, env={"A": "b c"}, data_dir="d", data_backend="image_folder")
    write_csv(path, [record(what), record(experiment("vgg19"), reason="Out of memory, said torch.")])
    good, bad = csv.DictReader(path.read_text().splitlines())
    assert (good["model"], good["status"], good["throughput"], good["time_median"]) == (
        "resnet50", "success", "160.0", "0.1",
    )  # fmt: skip
    assert (good["torch"], good["peak_rss_bytes"], good["peak_gpu_bytes"]) == ("2.13.0+cpu", "1000000000", "")
    assert (good["nodes"], bad["nodes"]) == ("1", "1")
    columns = ("data_backend", "time_data", "time_p99", "num_batches", "env", "on")
    assert tuple(good[name] for name in columns) == (
        "image_folder", "0.0", "0.1", "7", "A='b c'", "cpu",
    )  # fmt: skip
    assert (bad["data_backend"], bad["num_batches"], bad["env"]) == ("synthetic", "100", "")
    assert (bad["status"], bad["reason"], bad["throughput"]) == ("failure", "Out of memory, said torch.", "")


def test_no_cell_of_a_table_is_a_formula(tmp_path: Path) -> None:
    formulas = ["=cmd|'/C calc'!A0", "+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "=1\r=2"]
    series = Series(seconds=(1,), cpu_percent=(90,), memory_bytes=(5,))
    places = [record(where=HERE.model_copy(update={"name": name, "host": name}), reason=name) for name in formulas]
    records = [each.model_copy(update={"monitor": series}) for each in (*places, record())]
    path = tmp_path / "results.csv"
    for write, columns in ((write_csv, ("place", "host", "reason")), (write_monitor, ("place",))):
        write(path, records)
        with path.open(newline="") as file:
            *rows, plain = csv.DictReader(file)
        for column in columns:
            assert [row[column] for row in rows] == ["'" + text.replace("\r", " ") for text in formulas]
        assert plain["place"] == "a"
    assert plain["cpu_percent"] == "90.0"


def test_time_series_have_a_table_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "monitor.csv"
    series = Series(seconds=(1, 2), cpu_percent=(90, 80), memory_bytes=(5, 7), gpu_watts=(None, 70))
    lacking = record(reason="No.").model_copy(update={"failure": "out-of-memory", "monitor": series})
    write_monitor(path, [record(), lacking])
    first, second = csv.DictReader(path.read_text().splitlines())
    assert (first["place"], first["batch_size"], first["status"], first["seconds"]) == (
        "a",
        "16",
        "out-of-memory",
        "1.0",
    )
    assert (first["cpu_percent"], second["memory_bytes"]) == ("90.0", "7.0")
    assert (first["gpu_watts"], second["gpu_watts"], first["gpu_percent"]) == ("", "70.0", "")
