"""The times that images are given."""

import subprocess
from pathlib import Path

import pytest

from torchbake.build import commit
from torchbake.build.commit import commit_time, content_epoch, revision, rfc3339, untrue_label
from torchbake.errors import UsageError
from torchbake.oci.labels import CREATED, REVISION


def test_the_latest_time_in_an_image_is_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert rfc3339(content_epoch()) == "2025-01-01T00:00:00Z"


@pytest.mark.parametrize(("epoch", "time"), [("0", "1970-01-01T00:00:00Z"), ("1700000000", "2023-11-14T22:13:20Z")])
def test_the_environment_decides_on_both_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, epoch: str, time: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert content_epoch() == int(epoch)
    assert commit_time(tmp_path) == time


@pytest.mark.parametrize("epoch", ["yesterday", "-1", "1.5", " 1", "2025-01-01"])
def test_an_epoch_that_is_no_number_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, epoch: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
        content_epoch()


def test_an_empty_epoch_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")
    assert content_epoch() == 1735689600


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_processes: None) -> Path:
    """A folder in git with two commits."""
    commit._untrue.cache_clear()
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    git(tmp_path, "init", "-q")
    for number in (1, 2):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"170000000{number} +0100")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "One more")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_labels_of_a_commit_stay_true(repository: Path) -> None:
    labels = {REVISION: revision(repository), CREATED: commit_time(repository)}
    assert untrue_label(repository, labels) == ""
    git(repository, "commit", "-q", "--allow-empty", "-m", "A later one")
    assert untrue_label(repository, labels) == ""
    assert untrue_label(repository, {**labels, REVISION: f"{labels[REVISION]}-dirty"}) == ""


def test_labels_that_disagree_with_git_are_named(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {REVISION: revision(repository), CREATED: commit_time(repository)}
    for wrong, word in (
        ({REVISION: ""}, "is empty"),
        ({REVISION: "a" * 40}, "does not have"),
        ({REVISION: "main"}, "is no commit"),
        ({CREATED: "2026-01-01T00:00:00Z"}, "2026-01-01T00:00:00Z"),
        ({REVISION: git(repository, "rev-parse", "HEAD^")}, labels[CREATED]),
    ):
        text = untrue_label(repository, labels | wrong)
        assert word in text, wrong
        assert next(iter(wrong)) in text or CREATED in text
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assert untrue_label(repository, {**labels, CREATED: "2026-01-01T00:00:00Z"}) == ""


def test_labels_are_not_judged_where_git_cannot_tell(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert untrue_label(elsewhere, {}) == ""
    first = {REVISION: git(repository, "rev-parse", "HEAD^"), CREATED: "2023-11-14T22:13:21Z"}
    assert untrue_label(repository, first) == ""
    git(elsewhere, "clone", "-q", "--depth", "1", repository.as_uri(), "clone")
    assert untrue_label(elsewhere / "clone", first) == ""
