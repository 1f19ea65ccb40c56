"""`list --changed-since` in a real git repository: what a pull request changes, and nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.forked import run_forked
from torchbake.core.paths import TOOLKIT
from torchbake.errors import UsageError

pytestmark = pytest.mark.build

CPU, DEVEL, INIT = "2.13.0-cpu-runtime-debian12", "2.13.0-cpu-devel-debian12", "volume-permissions"
WORDS = (CPU, DEVEL, INIT)
Changed = Callable[..., dict[str, str]]


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    process = subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True)
    return process.stdout.strip()


def commit(folder: Path, message: str) -> None:
    """Commit all files of the repository."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)


def listed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_forked("torchbake", "list", *words, cwd=folder, env=os.environ, timeout=120)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of somebody's own, whose matrix is in a folder of it; its first commit is tagged `then`."""
    folder = tmp_path / "a repository/images of ours"
    folder.mkdir(parents=True)
    git(tmp_path, "init", "-q", str(folder.parent))
    (folder / "matrix.yaml").write_text((TOOLKIT / "matrix.yaml").read_text())
    for name in ("builder.lock", *(f"{name}/{file}" for name in WORDS for file in ("Dockerfile", "requirements.lock"))):
        if (TOOLKIT / "images" / name).exists():
            (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "images" / name).write_bytes((TOOLKIT / "images" / name).read_bytes())
    commit(folder, "then")
    git(folder, "tag", "then")
    return folder


@pytest.fixture
def changed(repository: Path) -> Changed:
    def ask(*words: str, since: str = "then") -> dict[str, str]:
        process = listed(repository, *(words or WORDS), "--changed-since", since, "--format", "json")
        assert process.returncode == 0, process.stderr
        return {image["id"]: image["reason"] for image in json.loads(process.stdout)["images"]}

    return ask


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_nothing_has_changed_since_the_commit_itself(repository: Path, changed: Changed) -> None:
    (repository / "README.md").write_text("no input of an image")
    commit(repository, "now")
    assert changed() == changed(since="HEAD^") == {}
    process = listed(repository, *WORDS, "--changed-since", "then", "--format", "github")
    assert (process.returncode, process.stdout) == (0, '{"include": []}\n')
    assert git(repository, "status", "--porcelain") == ""


def test_a_changed_lock_or_row_counts_for_its_image_alone(repository: Path, changed: Changed) -> None:
    lock = repository / f"images/{CPU}/requirements.lock"
    hashes = re.findall(r"sha256:[0-9a-f]{64}", lock.read_text())
    edit(lock, hashes[0], f"sha256:{'0' * 64}")
    assert changed() == {CPU: "changed: requirements.lock"}
    git(repository, "checkout", "--", ".")
    edit(repository / "matrix.yaml", "volume-permissions: {version: 1.0.0", "volume-permissions: {version: 1.0.1")
    assert changed() == {INIT: "its row changed: release"}


def test_an_image_that_was_not_there_has_changed(repository: Path, changed: Changed) -> None:
    edit(repository / "matrix.yaml", "  volume-permissions:", "  another:")
    git(repository, "commit", "-qam", "before it")
    git(repository, "checkout", "-q", "then", "--", ".")
    assert changed(since="HEAD") == {INIT: "not in the matrix of HEAD"}


def test_a_matrix_that_cannot_be_read_makes_all_of_them_due(repository: Path, changed: Changed) -> None:
    edit(repository / "matrix.yaml", "rows:", "rowz:")
    git(repository, "commit", "-qam", "broken")
    git(repository, "checkout", "-q", "then", "--", ".")
    assert set(changed(since="HEAD")) == set(WORDS)


def test_files_and_templates_of_ones_own_count(repository: Path, changed: Changed) -> None:
    (repository / "conf").mkdir()
    (repository / "conf/a.ini").write_text("a = 1\n")
    edit(repository / "matrix.yaml", "defaults:\n", "defaults:\n  files: [{source: conf/, target: /etc/acme}]\n")
    render(repository)
    commit(repository, "files")
    assert changed(CPU, since="HEAD") == {}
    (repository / "conf/b.ini").write_text("b = 2\n")
    assert changed(CPU, since="HEAD") == {CPU: "changed: conf/b.ini"}
    (repository / "conf/b.ini").unlink()
    (repository / "conf/a.ini").write_text("a = 2\n")
    assert changed(CPU, since="HEAD") == {CPU: "changed: conf/a.ini"}
    git(repository, "checkout", "-q", "conf")
    (repository / "conf/__pycache__").mkdir()
    (repository / "conf/__pycache__/a.pyc").write_text("what Python leaves is in no image")
    assert changed(CPU, since="HEAD") == {}
    (repository / "templates").mkdir()
    (repository / "templates/pytorch.Dockerfile.j2").write_text(
        '{% extends "pytorch.Dockerfile.j2" %}{% block end %}STOPSIGNAL SIGINT{% endblock %}'
    )
    assert changed(CPU, since="HEAD") == {CPU: "changed: Dockerfile"}


def test_a_folder_that_a_glob_names_counts_with_all_in_it(repository: Path, changed: Changed) -> None:
    (repository / "templates").mkdir()
    (repository / "templates/pytorch.Dockerfile.j2").write_text(
        '{% extends "pytorch.Dockerfile.j2" %}{% block before_user %}COPY conf* /etc/acme/{% endblock %}'
    )
    (repository / "conf.d").mkdir()
    (repository / "conf.d/a.ini").write_text("a = 1\n")
    render(repository)
    commit(repository, "templates")
    assert changed(CPU, since="HEAD") == {}
    (repository / "conf.d/a.ini").write_text("a = 2\n")
    assert changed(CPU, since="HEAD") == {CPU: "changed: conf.d/a.ini"}


@pytest.mark.parametrize("place", ["ignored", "submodule"])
def test_a_toolkit_that_only_lies_there_is_taken_as_it_is(repository: Path, place: str) -> None:
    tree = repository / "toolkit"
    for name in ("torchbake", "entrypoints", "layers", "templates"):
        shutil.copytree(TOOLKIT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    (repository / ".gitignore").write_text("toolkit/\n" if place == "ignored" else "")
    if place == "submodule":
        git(tree, "init", "-q")
        commit(tree, "the toolkit")
    commit(repository, "with it")
    command = [sys.executable, "-m", "torchbake", "list", INIT, "--changed-since", "HEAD", "--format", "ids"]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    process = subprocess.run(command, cwd=repository, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (process.returncode, process.stdout) == (0, ""), process.stderr


def render(repository: Path) -> None:
    command = [sys.executable, "-m", "torchbake", "render", CPU]
    process = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stderr


def test_before_the_first_commit_there_was_nothing(changed: Changed) -> None:
    assert set(changed(since="0" * 40).values()) == {"not in the matrix of no commit"}


@pytest.mark.parametrize("ref", ["nowhere", "--all", "HEAD:matrix.yaml", "HEAD~9", ""])
def test_a_commit_that_is_not_there_is_a_usage_error(repository: Path, ref: str) -> None:
    process = listed(repository, "all", f"--changed-since={ref}")
    assert (process.returncode, process.stdout) == (UsageError.exit_code, "")
    assert f"no commit '{ref}'" in process.stderr
    assert "git fetch" in process.stderr


def test_outside_a_repository_is_a_usage_error(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "matrix.yaml").write_text((repository / "matrix.yaml").read_text())
    process = listed(other, "all", "--changed-since", "HEAD")
    assert process.returncode == UsageError.exit_code
    assert "in no git repository" in process.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can give a repository to somebody else")
def test_a_repository_of_somebody_else_is_refused_in_gits_words(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container of CI, where root reads a checkout of another user."""
    subprocess.run(["chown", "-R", "1001", repository.parent], check=True)
    monkeypatch.setenv("HOME", str(repository.parent.parent))  # where no safe.directory is set
    process = listed(repository, *WORDS, "--changed-since", "then")
    assert process.returncode == UsageError.exit_code
    assert "dubious ownership" in process.stderr
    assert "git init" not in process.stderr
    (line,) = re.findall(r"git config --global --add safe.directory .*", process.stderr)
    subprocess.run(line, shell=True, check=True)
    assert listed(repository, *WORDS, "--changed-since", "then").returncode == 0


def test_no_variable_of_git_names_another_repository(
    repository: Path, tmp_path: Path, changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "elsewhere")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere/.git"))
    assert changed() == {}


def test_a_checkout_that_asks_for_crlf_has_the_same_files(repository: Path, tmp_path: Path) -> None:
    """As on Windows, whose git has core.autocrlf=true."""
    product = subprocess.run(
        [sys.executable, "-m", "torchbake", "init", str(tmp_path / "new")], capture_output=True, text=True, check=False
    )
    assert product.returncode == 0, product.stderr
    (repository / ".gitattributes").write_bytes((tmp_path / "new/.gitattributes").read_bytes())
    (repository / "page.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    commit(repository, "with attributes")
    git(tmp_path, "clone", "-q", "-c", "core.autocrlf=true", str(repository.parent), str(tmp_path / "clone"))
    clone = tmp_path / "clone" / repository.name
    names = git(repository, "ls-files").splitlines()
    assert {name: (clone / name).read_bytes() for name in names} == {
        name: (repository / name).read_bytes() for name in names
    }
    process = listed(clone, *WORDS, "--changed-since", "HEAD", "--format", "ids")
    assert (process.returncode, process.stdout) == (0, ""), process.stderr
