"""The output and exit codes of `store`. It asks no engine: unit tests have none."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.layouts import archive, damage, file, put, sha256
from tests.unit.store.writers import DATA, keep
from torchbake.cli import main
from torchbake.errors import DamagedError, UsageError
from torchbake.oci.labels import ID
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout

KEY = sha256(b"key")


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LayerStore:
    """The store of layers, beside a project's image; no matrix is needed."""
    monkeypatch.setenv("TORCHBAKE_LAYERS", str(tmp_path / "layers"))
    store = LayerStore(folder=tmp_path / "layers")
    keep(store, KEY)
    keep(store, sha256(b"another key"))
    layout = Layout(folder=tmp_path / ".torchbake/layout")
    config = {"config": {"Labels": {ID: "image-1"}}}
    with layout.write_lock() as exports:
        layout.take(exports / "a", put(Layout(folder=exports / "a"), archive(file("a")), config=config))
    return store


def store(tmp_path: Path, *words: str) -> int:
    return main(["store", *words, "--matrix", str(tmp_path / "matrix.yaml")])


def report(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert store(tmp_path, *words, "--format", "json") in (0, DamagedError.exit_code)
    return json.loads(capsys.readouterr().out)


def test_layers_and_images_are_listed(
    layers: LayerStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHBAKE_LAYERS_MAX", "20 GB")
    text = report(tmp_path, capsys, "ls")
    totals = {name: text["layers"][name] for name in ("folder", "bytes", "limit")}
    assert totals == {"folder": str(layers.folder), "bytes": len(DATA), "limit": 20 * 10**9}
    assert {(one["key"], one["bytes"]) for one in text["layers"]["layers"]} == {
        (KEY, len(DATA)), (sha256(b"another key"), len(DATA)),
    }  # fmt: skip
    (image,) = text["images"]["images"]
    assert image["name"] == "image-1"
    assert image["bytes"] == text["images"]["bytes"]
    assert store(tmp_path, "ls") == 0
    out = capsys.readouterr().out
    assert out.count("bytecode of nvidia") == 1  # one layer, which has two keys
    assert image["key"][7:19] in out


def test_a_limit_that_is_no_size_is_refused(
    layers: LayerStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHBAKE_LAYERS_MAX", "plenty")
    assert store(tmp_path, "ls") == UsageError.exit_code
    assert "TORCHBAKE_LAYERS_MAX: 'plenty'" in capsys.readouterr().err


def test_a_sound_store_is_verified(layers: LayerStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert store(tmp_path, "verify") == 0
    text = report(tmp_path, capsys, "verify")
    assert (text["blobs"], text["damages"], text["removed"]) == (4, [], False)


def test_damage_is_named_and_stays_until_it_is_to_be_removed(
    layers: LayerStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = layers.path(sha256(DATA))
    damage(path, is_seen=False)
    for _ in range(2):
        assert store(tmp_path, "verify") == DamagedError.exit_code
        assert str(path) in capsys.readouterr().out
    assert report(tmp_path, capsys, "verify")["damages"][0]["needed_by"] == ["bytecode of nvidia"]
    assert store(tmp_path, "verify", "--remove-damaged") == 0
    assert not path.exists()
    assert store(tmp_path, "verify") == 0


@pytest.mark.parametrize("words", [("list",), ("ls", "--remove-damaged"), ("--remove-damaged",)])
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], layers: LayerStore, tmp_path: Path) -> None:
    assert store(tmp_path, *words) == UsageError.exit_code
