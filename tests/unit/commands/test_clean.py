"""`clean`: the folders that it frees, and its dry run."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.conftest import SMALL
from tests.unit.layouts import sha256
from tests.unit.store.writers import keep
from torchbake.cli import main
from torchbake.errors import UsageError
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHBAKE_LAYERS", str(tmp_path / "cache/layers"))
    monkeypatch.setattr("torchbake.commands.clean.cache_folder", lambda: tmp_path / ".torchbake")
    (tmp_path / "matrix.yaml").write_text(SMALL)
    for name, size in {
        "cache/layers/blobs/sha256/a": 1000, ".torchbake/stand-ins/a/b": 10, ".torchbake/layout/blobs/sha256/c": 500,
        ".torchbake/exports/blobs/sha256/d": 30, ".torchbake/layers/blobs/sha256/f": 200,
        ".torchbake/unchanged/a.json": 3, ".torchbake/runs/one/d.log": 7, ".torchbake/bases/debian12.json": 3,
        ".torchbake/contents/a.zst": 40, ".torchbake/debs/a/system/git_amd64.deb": 60, "reports/e": 5,
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    return tmp_path


def freed(project: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, int]:
    assert main(["clean", "--matrix", str(project / "matrix.yaml"), "--format", "json", *words]) == 0
    return {each["folder"]: each["bytes"] for each in json.loads(capsys.readouterr().out)["freed"]}


def files(project: Path) -> set[str]:
    return {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}


def test_it_says_what_it_frees_and_frees_that_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert freed(project, capsys) == {
        f"{project}/cache/layers": 1000, f"{project}/.torchbake/stand-ins": 10, f"{project}/.torchbake/wheels": 0,
        f"{project}/.torchbake/layout": 500, f"{project}/.torchbake/layout-gzip": 0,
        f"{project}/.torchbake/debs": 60, f"{project}/.torchbake/exports": 30, f"{project}/.torchbake/runs": 7,
        f"{project}/.torchbake/contents": 40, f"{project}/.torchbake/layers": 200, f"{project}/.torchbake/unchanged": 3,
    }  # fmt: skip
    assert files(project) == {"matrix.yaml", ".torchbake/bases/debian12.json", "reports/e"}
    assert set(freed(project, capsys).values()) == {0}


def test_a_dry_run_says_the_same_and_frees_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(project)
    lines = freed(project, capsys, "--dry-run")
    assert files(project) == before
    assert freed(project, capsys) == lines


def test_people_are_told_the_sum(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "--matrix", str(project / "matrix.yaml")]) == 0
    assert "freed 1.85 kB; the engine's images are as they were" in capsys.readouterr().err


def test_the_layers_that_were_used_last_can_stay(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = LayerStore(folder=project / "cache/layers")
    old, new = sha256(b"old"), sha256(b"new")
    keep(store, old, b"x" * 900)
    keep(store, new, b"y" * 500)
    os.utime(store.folder / "wheels" / f"{old[7:]}.json", (1, 1))
    keeping = ("--keep-layers", "0.6 kB")
    count = freed(project, capsys, *keeping, "--dry-run")[str(store.folder)]
    assert 1900 < count < 3000  # the older layer with its record, and a blob that no layer needs
    assert store.find(old)
    os.utime(store.folder / "wheels" / f"{old[7:]}.json", (1, 1))
    assert freed(project, capsys, *keeping)[str(store.folder)] == count
    assert (store.find(old), bool(store.find(new))) == (None, True)
    assert freed(project, capsys, *keeping)[str(store.folder)] == 0


def test_a_store_that_a_build_uses_stays(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers, images = LayerStore(folder=project / "cache/layers"), Layout(folder=project / ".torchbake/layout")
    with layers.in_use(), images.write_lock():
        lines = freed(project, capsys)
    assert (lines[str(layers.folder)], lines[str(images.folder)]) == (0, 0)
    assert {"cache/layers/blobs/sha256/a", ".torchbake/layout/blobs/sha256/c"} <= files(project)
    freed(project, capsys)
    assert not layers.folder.exists()
    assert not images.folder.exists()


@pytest.mark.parametrize("size", ["much", "-1GB", "10 apples"])
def test_a_size_that_is_none_is_refused(project: Path, size: str) -> None:
    assert main(["clean", "--matrix", str(project / "matrix.yaml"), f"--keep-layers={size}"]) == UsageError.exit_code
