"""What `clean` frees, and that it says so before it does."""

import json
from pathlib import Path

import pytest

from tests.unit.conftest import SMALL
from torchbake.cli import main


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHBAKE_LAYERS", str(tmp_path / "cache/layers"))
    (tmp_path / "matrix.yaml").write_text(SMALL)
    for name, size in {
        "cache/layers/blobs/sha256/a": 1000, ".torchbake/stand-ins/a/b": 10, ".torchbake/layout/blobs/sha256/c": 500,
        ".torchbake/exports/blobs/sha256/d": 30, ".torchbake/runs/one/d.log": 7, ".torchbake/bases/debian12.json": 3,
        "reports/e": 5,
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
        f"{project}/.torchbake/layout": 500, f"{project}/.torchbake/exports": 30, f"{project}/.torchbake/runs": 7,
    }  # fmt: skip
    assert files(project) == {"matrix.yaml", ".torchbake/bases/debian12.json", "reports/e"}
    assert set(freed(project, capsys).values()) == {0}


def test_a_dry_run_says_the_same_and_frees_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(project)
    said = freed(project, capsys, "--dry-run")
    assert files(project) == before
    assert freed(project, capsys) == said


def test_people_are_told_the_sum(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "--matrix", str(project / "matrix.yaml")]) == 0
    assert "freed 1.55 kB; the engine's images are as they were" in capsys.readouterr().err
