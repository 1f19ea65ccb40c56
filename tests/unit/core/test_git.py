"""Answers and failures of git."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from torchbake.build.commit import commit_time, revision
from torchbake.core.git import ask_git, head_commit, run_git
from torchbake.core.tracked import check_untracked
from torchbake.errors import UsageError

UNSAFE = """\
fatal: detected dubious ownership in repository at '/srv/images'
To add an exception for this directory, call:

\tgit config --global --add safe.directory /srv/images
"""
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.com")
Answering = Callable[..., list[dict[str, str]]]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Lets git end with this code and these words; returns the environments that it gets."""

    def answer(code: int, output: str = "", stdout: str = "") -> list[dict[str, str]]:
        environments: list[dict[str, str]] = []

        def run(words: list[str], *, env: dict[str, str], **_: object) -> "subprocess.CompletedProcess[bytes]":
            environments.append(env)
            return subprocess.CompletedProcess(words, code, stdout=stdout.encode(), stderr=output.encode())

        monkeypatch.setattr(subprocess, "run", run)
        return environments

    return answer


@pytest.mark.parametrize("ask", [revision, commit_time, head_commit])
def test_a_repository_of_somebody_else_is_no_absent_one(ask: Callable[[Path], str], answering: Answering) -> None:
    answering(128, UNSAFE)
    with pytest.raises(UsageError, match="dubious ownership") as refused:
        ask(Path("/srv/images"))
    assert refused.value.hint
    assert "git config --global --add safe.directory /srv/images" in refused.value.hint


@pytest.mark.parametrize("ask", [revision, commit_time, head_commit])
def test_a_damaged_repository_is_no_absent_one(ask: Callable[[Path], str], answering: Answering) -> None:
    answering(128, "error: it is empty\nfatal: loose object c0ffee is corrupt\n")
    with pytest.raises(UsageError, match="loose object c0ffee is corrupt"):
        ask(Path("/srv/images"))


@pytest.mark.parametrize(
    ("code", "output"), [(128, "fatal: not a git repository (or any of the parent directories): .git"), (1, "")]
)
def test_no_repository_and_no_commit_are_absent(code: int, output: str, answering: Answering) -> None:
    answering(code, output)
    assert revision(Path("/srv/images")) == ask_git(Path("/srv/images"), "log") == ""
    assert commit_time(Path("/srv/images")) > "2026"


def test_no_variable_names_another_repository(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES"}
    for name in names:
        monkeypatch.setenv(name, "/elsewhere")
    for name, value in {"GIT_CONFIG_COUNT": "1", "LC_ALL": "de_DE.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    environments = answering(0, stdout="c0ffee\n")
    assert head_commit(Path("/srv/images")) == "c0ffee"
    assert not environments[0].keys() & names
    assert (environments[0]["GIT_CONFIG_COUNT"], environments[0]["LC_ALL"]) == ("1", "C")


@pytest.mark.usefixtures("own_processes")
def test_a_credential_helper_reads_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUR_USER", "GIT_PASSWORD"):
        monkeypatch.setenv(name, f"of {name}")
    helper = '!f() { echo "username=$OUR_USER"; echo "password=$GIT_PASSWORD"; }; f'
    question = b"protocol=https\nhost=git.example\n\n"
    answer = run_git(tmp_path, "-c", f"credential.helper={helper}", "credential", "fill", stdin=question)
    assert answer.stdout == question.rstrip(b"\n") + b"\nusername=of OUR_USER\npassword=of GIT_PASSWORD\n"


@pytest.mark.usefixtures("own_processes")
def test_a_clone_with_a_bare_repository_runs_nothing(tmp_path: Path) -> None:
    """Git took a folder of a clone for a repository, and ran the program that its `config` names."""
    folder = tmp_path / "clone/images"
    for name in ("objects", "refs", ".torchbake"):
        (folder / name).mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder.parent)], check=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    program = f'"touch {tmp_path}/run; false"'
    (folder / "config").write_text(f"[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = {program}\n")
    with pytest.raises(UsageError, match=r"git ls-files fails in .*cannot use bare repository") as refused:
        check_untracked(folder)
    assert "Remove HEAD" in str(refused.value.hint)
    with pytest.raises(UsageError):
        ask_git(folder, "status", "--porcelain")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("own_processes")
def test_a_repository_starts_no_program_for_a_status(tmp_path: Path) -> None:
    """An unpacked archive can bring `.git` with all its settings and hooks."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a").write_text("")
    subprocess.run(["git", "-C", str(tmp_path), "add", "a"], check=True)
    hook = tmp_path / ".git/hooks/post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook\n")
    hook.chmod(0o755)
    os.utime(tmp_path / "a", (0, 0))  # `status` would write the index again
    command = f"touch {tmp_path}/monitor; false"
    subprocess.run(["git", "-C", str(tmp_path), "config", "core.fsmonitor", command], check=True)
    assert ask_git(tmp_path, "status", "--porcelain", "--untracked-files=no") == "A  a"
    assert not (tmp_path / "hook").exists()
    assert not (tmp_path / "monitor").exists()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit, of real git."""
    path = tmp_path / "repository"
    for words in (("init", "-q", str(path)), ("-C", str(path), *AUTHOR, "commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run(["git", *words], check=True)
    return path


@pytest.mark.usefixtures("own_processes")
def test_a_folder_below_a_ceiling_of_the_shell_has_its_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "images").mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(repository))
    assert revision(repository / "images") == head_commit(repository) != ""


@pytest.mark.usefixtures("own_processes")
@pytest.mark.skipif(bool(os.geteuid()), reason="not run: this test gives a repository away, as root")
def test_sudo_reads_the_checkout_of_its_user(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # without the `safe.directory` of this user
    commit = head_commit(repository)
    for path in (repository, repository / ".git"):
        os.chown(path, 54321, 54321)
    with pytest.raises(UsageError, match="dubious ownership"):
        head_commit(repository)
    monkeypatch.setenv("SUDO_UID", "54321")
    assert head_commit(repository) == commit


@pytest.mark.usefixtures("own_processes")
def test_a_worktree_without_its_repository_is_no_absent_one(repository: Path, tmp_path: Path) -> None:
    """As in a container that gets the worktree alone."""
    tree = tmp_path / "tree"
    run_git(repository, "worktree", "add", "-q", str(tree))
    assert revision(tree)
    repository.rename(tmp_path / "moved")
    for ask in (revision, commit_time):
        with pytest.raises(UsageError, match=f"no repository at {tree}/.git: fatal: not a git repository: ") as refused:
            ask(tree)
        assert "mount it too, in a container" in str(refused.value.hint)
        assert "git worktree repair" in str(refused.value.hint)


@pytest.mark.usefixtures("own_processes")
def test_a_lost_submodule_does_not_blame_its_parent(repository: Path, tmp_path: Path) -> None:
    """The advice to remove the parent's `.git` would destroy a repository."""
    (repository / "sub").mkdir()
    (repository / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    run_git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    with pytest.raises(UsageError, match=f"no repository of a submodule below {repository}: .*modules/sub") as refused:
        revision(repository)
    assert "git submodule update --init" in str(refused.value.hint)
    assert f"{repository}/.git" not in str(refused.value.hint)


@pytest.mark.usefixtures("own_processes")
def test_a_repository_without_its_head_is_no_absent_one(repository: Path, tmp_path: Path) -> None:
    (repository / ".git/HEAD").unlink()
    with pytest.raises(UsageError, match=r"not a git repository \(or any") as refused:
        revision(repository)
    assert f"remove {repository}/.git, if it is no repository" in str(refused.value.hint)
    assert revision(tmp_path) == ""
