"""State that a checkout brings is refused; real git says which files it tracks."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.unit.conftest import SMALL
from torchbake.checks.reports import Reports
from torchbake.core.tracked import check_untracked
from torchbake.errors import UsageError
from torchbake.matrix.project import load_project

VERDICT = Reports(folder=Path("reports")).path("2.13.0-cpu-runtime-debian12", "sha256:" + "0a" * 32)


def commit(root: Path, *names: str, at: str = ".") -> Path:
    """A repository with these files in git's index, whatever its .gitignore says; returns the project's folder."""
    folder = root / at
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(folder), "add", "--force", "--", *names], check=True)
    return folder


@pytest.mark.usefixtures("own_processes")
@pytest.mark.parametrize("at", [".", "images/own"])
@pytest.mark.parametrize("name", [".torchbake/bases/debian12.json", ".torchbake/tools/bin/x", str(VERDICT)])
def test_state_that_git_tracks_is_refused(name: str, at: str, tmp_path: Path) -> None:
    root = commit(tmp_path, name, "matrix.yaml", at=at)
    with pytest.raises(UsageError) as caught:
        check_untracked(root)
    assert caught.value.message.startswith(f"{root / name}: ")
    command = str(caught.value.hint).removeprefix("Remove it: ").partition(";")[0]
    subprocess.run(shlex.split(command), cwd=root, check=True)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("{}")  # of this machine
    check_untracked(root)


@pytest.mark.usefixtures("own_processes")
def test_a_project_whose_state_git_tracks_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchbake.matrix.project.check_untracked", check_untracked)  # unit tests are without it
    (tmp_path / "matrix.yaml").write_text(SMALL)
    load_project(tmp_path / "matrix.yaml")
    commit(tmp_path, ".torchbake/bases/debian12.json")
    with pytest.raises(UsageError, match="git tracks"):
        load_project(tmp_path / "matrix.yaml")


@pytest.mark.usefixtures("own_processes")
@pytest.mark.parametrize("name", ["reports", "reports/cpu"])
def test_a_link_of_reports_that_git_tracks_is_refused(name: str, tmp_path: Path) -> None:
    """It led to verdicts that git tracks under another name."""
    root = commit(tmp_path, "docs/cpu/0a.json", "matrix.yaml")
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).symlink_to(root / "docs" / Path(name).relative_to("reports"))
    subprocess.run(["git", "-C", str(root), "add", "--force", name], check=True)
    with pytest.raises(UsageError, match="git tracks") as caught:
        check_untracked(root)
    assert f"git rm -rf {name};" in str(caught.value.hint)


@pytest.mark.usefixtures("own_processes")
def test_a_submodule_as_reports_is_refused(tmp_path: Path) -> None:
    root = commit(tmp_path, "matrix.yaml")
    (root / "reports/cpu").mkdir(parents=True)
    entry = f"160000,{'1' * 40},reports"
    subprocess.run(["git", "-C", str(root), "update-index", "--add", "--cacheinfo", entry], check=True)
    with pytest.raises(UsageError, match="git tracks"):
        check_untracked(root)


@pytest.mark.usefixtures("own_processes")
def test_pages_of_reports_may_be_committed(tmp_path: Path) -> None:
    names = (
        "reports/index.html",
        "reports/summary.json",
        "reports/cpu/sbom.cdx.json",
        "reports/benchmark/results.jsonl",
    )
    check_untracked(commit(tmp_path, *names))


@pytest.mark.usefixtures("own_processes")
def test_a_list_of_files_that_git_cannot_read_is_an_error(tmp_path: Path) -> None:
    root = commit(tmp_path, ".torchbake/bases/debian12.json")
    (root / ".git/index").write_bytes(b"damaged")
    with pytest.raises(UsageError, match=r"git ls-files fails in .*index file"):
        check_untracked(root)


def test_git_is_not_asked_where_it_has_nothing_to_say(tmp_path: Path) -> None:
    """A process would be an error of this test."""
    (tmp_path / "a/.torchbake").mkdir(parents=True)
    (tmp_path / "b/.git").mkdir(parents=True)
    for name in "ab":
        check_untracked(tmp_path / name)
