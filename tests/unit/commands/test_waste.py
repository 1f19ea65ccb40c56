"""The output and exit codes of `waste`, for inventories made here."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.contents.test_waste import WASTE, entry, inventory
from torchbake.cli import main
from torchbake.contents.model import Inventory
from torchbake.errors import UsageError, WasteError

IMAGE = inventory(
    *WASTE["removed"], *WASTE["ownership"], *WASTE["gpu-code"], *WASTE["bytecode"], entry("opt/large", 990_000)
)


@pytest.fixture(autouse=True)
def _image(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(args: Any, text: str) -> Inventory:
        assert text == "train:latest"
        return IMAGE

    monkeypatch.setattr("torchbake.commands.waste.find_image", lambda _, text: text)
    monkeypatch.setattr("torchbake.commands.waste.inventory_of", read)


def waste(*words: str) -> int:
    return main(["waste", "train:latest", *words])


def test_the_first_line_says_how_much_could_go(capsys: pytest.CaptureFixture[str]) -> None:
    assert waste() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("could go: 0.4 %")
    for words in (("removed", "2 kB"), ("ownership", "2 kB"), ("bytecode", "2 kB"), ("sm_90", "5 kB", "H100")):
        assert any(all(word in line for word in words) for line in lines), words
    assert not [line for line in lines if line.startswith("/opt/data")]


def test_a_step_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    layers = tuple(replace(layer, step="RUN chown :x: /app [bold]\n  now") for layer in IMAGE.layers)
    monkeypatch.setattr("torchbake.commands.waste.inventory_of", lambda *_: replace(IMAGE, layers=layers))
    assert waste() == 0
    assert "(RUN chown :x: /app [bold] now)" in capsys.readouterr().out


def test_top_shows_the_largest_paths(capsys: pytest.CaptureFixture[str]) -> None:
    for words, visible in ((("--top", "1"), True), (("-v",), False), (("--verbose",), False)):
        assert waste(*words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(line.startswith("/opt/data") for line in lines) == visible, words
    assert waste("--top", "0") == UsageError.exit_code


def test_json_has_every_kind_layer_and_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert waste("--format", "json", "--gpus", "H100") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["bytes"], result["wasted"], result["gpus"]) == (IMAGE.size, 6000, ["9.0"])
    assert result["gpu_code"] == {"sm_80": 2000, "sm_90": 5000}
    kinds = {each["kind"]: each for each in result["kinds"]}
    assert {name for name, each in kinds.items() if not each["information"]} == {"removed", "ownership", "gpu-code"}
    assert sum(each["bytes"] for each in kinds.values() if not each["information"]) == result["wasted"]
    removed = kinds["removed"]
    assert removed["files"] == [
        {"path": "/opt/old", "layer": 1, "bytes": 2000, "hidden_by": 2, "copy_of": None},
    ]
    assert removed["layers"] == [
        {
            "layer": 1, "step": "RUN step 0", "bytes": 2000, "compressed": 1000, "files": 1, "hidden_by": 2,
            "hiding_step": "RUN step 1",
        },
    ]  # fmt: skip


def test_more_waste_than_the_limit_ends_with_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in (
        (("--fail-over", "4kB"), 0),
        (("--fail-over", "3.9kB"), WasteError.exit_code),
        (("--fail-over", "0.1%"), WasteError.exit_code),
        (("--fail-over", "0.1%", "--ignore", "removed", "--ignore", "ownership"), 0),
        (("--fail-over", "4kB", "--gpus", "9.0"), WasteError.exit_code),
        (("--fail-over", "much"), UsageError.exit_code),
        (("--fail-over", "5"), UsageError.exit_code),
        (("--ignore", "nothing"), UsageError.exit_code),
        (("--gpus", "H10"), UsageError.exit_code),
    ):
        assert waste(*words) == code, words
    capsys.readouterr()
    waste("--fail-over", "0", "--format", "json")
    result = capsys.readouterr()
    assert json.loads(result.out)["wasted"] == 4000
    assert "--fail-over allows 0" in result.err
    waste("--ignore", "remove")
    assert "removed" in capsys.readouterr().err


def test_ignored_kinds_are_in_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    waste("--ignore", "removed", "--ignore", "logs")
    assert capsys.readouterr().out.splitlines()[0].endswith("could go: 0.2 % (without removed, logs)")
    waste("--ignore", "removed", "--format", "json")
    assert json.loads(capsys.readouterr().out)["ignored"] == ["removed"]


def test_the_page_is_written_before_the_result_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "waste.html"

    def show(*_: object) -> None:
        assert path.exists()

    monkeypatch.setattr("torchbake.commands.waste.show_report", show)
    assert waste("--page", str(path)) == 0
    assert f"the page: {path}" in " ".join(capsys.readouterr().err.split())


def test_a_page_is_written_in_addition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some/waste.html"
    assert waste("--page", str(path), "--fail-over", "0") == WasteError.exit_code
    assert "could go" in path.read_text()
    assert "could go" in capsys.readouterr().out
