"""The choice of the files of a folder of code."""

import subprocess
from pathlib import Path

import pytest

from tests.unit.code.folders import write
from torchbake.code.files import choose_files
from torchbake.errors import UsageError


def test_hidden_files_and_bytecode_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys((".env", ".venv/x.py", "a/__pycache__/x.py", "a/x.pyc", "a/x.py", "b.err"), "1"))
    assert choose_files(tmp_path) == ["a/x.py"]


@pytest.mark.usefixtures("own_processes")
def test_dockerignore_and_git_hold(tmp_path: Path) -> None:
    files = dict.fromkeys(("data/x", "train.py", "out/y"), "1")
    write(tmp_path, {".dockerignore": "data\n", ".gitignore": "out\n", **files})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert choose_files(tmp_path) == ["train.py"]
    assert choose_files(tmp_path, include=["train.py", "out/y"]) == ["out/y", "train.py"]


@pytest.mark.usefixtures("own_processes")
def test_a_submodule_has_its_own_rules(tmp_path: Path) -> None:
    """Git itself answers no question about a file of a submodule: `Pathspec is in submodule`."""
    code, more = dict.fromkeys(("train.py", "out/x"), "1"), {".gitignore": "out\n"}
    write(tmp_path, {".gitignore": "*.bin\n", "a.bin": "1", "absent/b.bin": "1", "later/c.py": "1", **code})
    for name in ("sub/deep", "sub"):
        write(tmp_path / name, code | more)
    for name, modules in (("sub/deep", []), ("sub", ["deep"]), (".", ["absent", "later", "sub"])):
        git = ["git", "-C", str(tmp_path / name)]
        subprocess.run([*git, "init", "-q"], check=True)
        for module in modules:
            entry = f"160000,{'1' * 40},{module}"
            subprocess.run([*git, "update-index", "--add", "--cacheinfo", entry], check=True)
    (tmp_path / "later").rename(tmp_path / "gone")
    (tmp_path / "later").symlink_to("gone")
    own = ["absent/b.bin", "gone/c.py", "later", "out/x", "sub/deep/train.py", "sub/train.py", "train.py"]
    assert choose_files(tmp_path) == own


def test_patterns_choose(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(("train.py", "net/a.py", "net/b.py", "notes.md"), "1"))
    assert choose_files(tmp_path, include=["**/*.py"], exclude=["net/b*"]) == ["net/a.py", "train.py"]
    assert choose_files(tmp_path, leave_out=tmp_path / "notes.md") == ["net/a.py", "net/b.py", "train.py"]
    for include, exclude in ((["nothing"], []), ([], ["**"]), (["[z-a]"], [])):
        with pytest.raises(UsageError):
            choose_files(tmp_path, include=include, exclude=exclude)


def test_a_folder_of_any_size_is_taken(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(3 * 2**20))
    assert choose_files(tmp_path) == ["weights.bin"]


def test_secrets_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"id": "-----BEGIN PRIVATE KEY-----\n", "api_token.txt": "x", "train.py": ""})
    with pytest.raises(UsageError, match=r"api_token\.txt is named like a secret; id holds a key"):
        choose_files(tmp_path)
    assert choose_files(tmp_path, include=["**", "api_token.txt"], exclude=["id"]) == ["api_token.txt", "train.py"]
    with pytest.raises(UsageError, match="id holds a key"):
        choose_files(tmp_path, include=["id"])


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name in ("file", "nothing", "empty"):
        with pytest.raises(UsageError):
            choose_files(tmp_path / name)
