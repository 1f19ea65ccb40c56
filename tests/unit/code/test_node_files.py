"""Old files of images and of code in a folder of submission: only these are deleted."""

import os
from pathlib import Path

import pytest

from torchbake.code.node_files import list_node_files, prune_node_files
from torchbake.errors import UsageError

DAY, NOW = 86_400, 100 * 86_400.0
DIGEST = f"sha256-{'a' * 64}"
FILES = (f"pytorch-{DIGEST}.sif", f"code-{DIGEST}.squashfs")
OURS = (*FILES, f"{FILES[0]}.free", f"{FILES[0]}.part-12", f"{FILES[1]}.lock")
OTHERS = ("pytorch-cpu.sif", "train.py", "mnist-7.out", f"code-{DIGEST}.squashfs.bak", f"data-{DIGEST}.squashfs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*OURS, *OTHERS):
        (tmp_path / name).write_text("12345")
        os.utime(tmp_path / name, (NOW - 9 * DAY, NOW - 9 * DAY))
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_old_files_are_deleted_and_no_others(folder: Path) -> None:
    os.utime(folder / OURS[0], (NOW - 2 * DAY, NOW - 2 * DAY))
    (folder / f"link-{DIGEST}.sif").symlink_to(folder / "train.py")
    old = prune_node_files(folder, days=7, now=NOW, dry_run=True)
    assert {(file.path.name, file.size, file.days) for file in old} == {(name, 5, 9) for name in OURS[1:]}
    assert {*OURS, *OTHERS} <= names(folder)
    assert prune_node_files(folder, days=7, now=NOW, dry_run=False) == old
    assert names(folder) == {OURS[0], *OTHERS, f"link-{DIGEST}.sif"}
    assert prune_node_files(folder, days=7, now=NOW, dry_run=False) == ()


def test_the_oldest_file_is_listed_first(folder: Path) -> None:
    os.utime(folder / OURS[3], (0, 0))
    assert list_node_files(folder, now=NOW)[0].path.name == OURS[3]


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        list_node_files(tmp_path / "nowhere", now=NOW)
