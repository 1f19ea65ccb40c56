"""Files of root in a folder that another user exchanges while root writes."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from torchbake.core.files import replacing, write_text
from torchbake.core.foreign_folder import is_foreign, open_file

pytestmark = pytest.mark.skipif(bool(os.geteuid()), reason="not run: this test gives files away, as root")

OTHER = 54321
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of another user."""
    folder = tmp_path / "project"
    (folder / "reports").mkdir(parents=True)
    for path in (folder, folder / "reports"):
        os.chown(path, OTHER, OTHER)
    return folder


def exchange(one: Path, other: Path) -> None:
    names = [os.fsencode(path) for path in (one, other)]
    ctypes.CDLL(None).renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)


# The system calls that take a path, or a name in a folder.
CALLS = ("open", "stat", "lstat", "mkdir", "replace", "unlink")


@contextmanager
def interrupted(at: int, work: Callable[[], None]) -> Iterator[list[str]]:
    """Do the work of another process before the call with this number; yield the names of the calls so far."""
    calls = list[str]()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            if len(calls) == at:
                work()
            return call(*arguments, **options)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counted(name, getattr(os, name)))
        yield calls


def log(path: Path) -> None:
    os.close(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


@pytest.mark.parametrize("write", [lambda path: write_text(path, "root's"), log], ids=["text", "log"])
def test_a_folder_that_is_exchanged_for_a_link_leads_nowhere(
    write: Callable[[Path], None], project: Path, tmp_path: Path
) -> None:
    victim, link = tmp_path / "victim", project / "link"
    victim.mkdir()
    link.symlink_to(victim)
    os.lchown(link, OTHER, OTHER)
    ends = {"written": 0, "refused": 0}
    for at in count(1):
        with interrupted(at, lambda: exchange(project / "reports", link)) as calls:
            try:
                write(project / "reports/summary.md")
                ends["written"] += 1
            except OSError:
                ends["refused"] += 1
        assert [*victim.iterdir()] == [], calls
        if len(calls) < at:
            break  # it ended before the exchange
        exchange(project / "reports", link)
    assert all(ends.values()), ends


def test_a_link_in_place_of_the_temporary_file_is_not_written(project: Path, tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", project / "reports/summary.md"
    victim.write_text("root's")
    victim.chmod(0o600)
    with replacing(path) as temporary:
        (name,) = (project / "reports").iterdir()
        name.unlink()
        name.symlink_to(victim)
        temporary.write_text("a report")
    assert (victim.read_text(), victim.stat().st_mode & 0o7777) == ("root's", 0o600)
    assert [*(project / "reports").iterdir()] == [path]


def test_a_file_of_root_gets_no_setuid_bit(project: Path) -> None:
    path = project / "reports/summary.md"
    path.write_text("old")
    path.chmod(0o6711)
    write_text(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o7777, path.stat().st_uid) == ("new", 0o711, 0)


def test_a_foreign_folder_is_written_like_any_other(project: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.symlink_to(project / "reports")
    (project / "relative").symlink_to("../project/reports")
    (project / "here").symlink_to(".")
    places = ("a/b/c.txt", "relative/e.txt", "reports/../f.txt", "here/g.txt")
    for path in (own / "d.txt", *(project / place for place in places)):
        assert is_foreign(path)
        for text in ("one", "two"):
            write_text(path, text)
            assert (path.read_text(), path.stat().st_mode & 0o7777) == (text, 0o644)
    with pytest.raises(KeyError), replacing(project / "h.txt"):
        raise KeyError
    names = sorted(path.name for path in project.rglob("*") if path.is_file())
    assert names == [f"{letter}.txt" for letter in "cdefg"]
    (project / "a.txt").write_text("")
    for path in (project / "a.txt/b/c.txt", project / "a.txt/c.txt", project / "reports"):
        with pytest.raises(OSError, match=f"irectory: '{path}'") as caught:
            log(path)
        assert caught.value.filename == str(path)
    os.mkfifo(project / "fifo")
    with pytest.raises(OSError, match="is not a plain file"):
        write_text(project / "fifo", "x")
    (project / "root").symlink_to("/")
    for name in ("here", "root"):
        with pytest.raises(IsADirectoryError):
            write_text(project / name, "x")
    (project / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        write_text(project / "loop/x", "x")
