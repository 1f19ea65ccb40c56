"""Files are replaced whole or not at all."""

import os
import select
import shutil
import stat
import threading
from pathlib import Path

import pytest

from torchbake.core.files import files_below, freed_by, linked, remove_folder, replacing, write_text, write_texts


def test_a_file_is_written_with_its_folders(tmp_path: Path) -> None:
    write_text(tmp_path / "a/b/file", "text ☃\n")
    assert (tmp_path / "a/b/file").read_text(encoding="utf-8") == "text ☃\n"


def test_everybody_may_read_it(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "text")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError()])
def test_a_failed_write_leaves_the_old_file_and_no_other(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as beside:
            beside.write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_text_that_cannot_be_encoded_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o600)
    write_text(path, "new")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("target", ["there", "folder/not there yet"])
def test_what_a_link_points_at_is_replaced_and_the_link_stays(target: str, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    link = tmp_path / "link"
    link.symlink_to(target)
    write_text(link, "new")
    assert link.readlink() == Path(target)
    assert (tmp_path / target).read_text() == "new"


def test_a_fifo_is_written_to_and_stays(tmp_path: Path) -> None:
    fifo, messages = tmp_path / "fifo", list[str]()
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: messages.append(fifo.read_text()), daemon=True)
    reader.start()
    write_text(fifo, "text")
    reader.join(30)
    assert messages == ["text"]
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert [entry.name for entry in tmp_path.iterdir()] == ["fifo"]


@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_device_is_written_to_and_stays(through_a_link: bool, tmp_path: Path) -> None:
    """A terminal of our own, as root could replace /dev/null itself."""
    ours, theirs = os.openpty()
    device = Path(os.ttyname(theirs))
    path = device
    if through_a_link:
        path = tmp_path / "link"
        path.symlink_to(device)
    try:
        write_text(path, "text\n")
        message = b""
        while not message.endswith(b"\n") and select.select([ours], [], [], 30)[0]:
            message += os.read(ours, 100)  # a terminal may return a part of the text
        assert message == b"text\r\n"
        assert stat.S_ISCHR(device.lstat().st_mode)
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_is_open_already_keeps_what_stands_in_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    with log.open("a") as file:
        write_text(Path(f"/dev/fd/{file.fileno()}"), "after\n")
    assert log.read_text() == "before\nafter\n"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path / "folder", "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_link_is_the_same_file_whatever_had_its_name(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    for _ in range(2):
        linked(source, target)
        assert target.samefile(source)
    assert source.read_bytes() == b"new"


def test_the_next_removal_finishes_an_interrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "stand-ins"
    write_text(folder / "one/file", "text")

    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            remove_folder(folder)
    assert not folder.exists()
    assert [*tmp_path.rglob("file")] != []
    remove_folder(folder)
    assert [*tmp_path.iterdir()] == []


def test_what_has_a_name_elsewhere_is_not_freed(tmp_path: Path) -> None:
    first, second, path = (tmp_path / name for name in ("first", "second", "kept"))
    for folder in (first, second, path):
        folder.mkdir()
    (first / "alone").write_bytes(bytes(1))
    (first / "twice").write_bytes(bytes(20))
    (first / "again").hardlink_to(first / "twice")
    (first / "below").mkdir()
    (first / "below/both").write_bytes(bytes(300))
    (second / "both").hardlink_to(first / "below/both")
    (first / "engine's").write_bytes(bytes(4000))
    (path / "blob").hardlink_to(first / "engine's")
    (first / "link").symlink_to(path / "blob")
    assert freed_by(*map(files_below, (first, second, tmp_path / "none"))) == (21, 300, 0)
    assert freed_by(*map(files_below, (second, first))) == (0, 321)


def test_several_files_are_written_together_or_not(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "folder/second"
    write_texts({first: "1", second: "2"})
    assert (first.read_text(), second.read_text()) == ("1", "2")
    blocked = tmp_path / "first/below"  # below a file there is no folder
    with pytest.raises(OSError, match="first"):
        write_texts({second: "3", blocked: "4"})
    assert second.read_text() == "2"
    assert [path.name for path in second.parent.iterdir()] == ["second"]
