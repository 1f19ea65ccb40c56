"""The lock of releases among all users of a machine."""

import fcntl
import os
import pwd
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchbake.errors import PublishError, StorageError
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport
from torchbake.release import mutex
from torchbake.release.mutex import locked


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def registry(path: str = "team/pytorch") -> Registry:
    return Registry(RegistryTransport("127.0.0.1:1"), Repository(host="127.0.0.1:1", path=path))


def the_lock(folder: Path) -> Path:
    with locked(registry()):
        (path,) = folder.iterdir()
    return path


def test_one_release_of_a_repository_at_a_time(folder: Path) -> None:
    order, inside = list[str](), threading.Event()

    def second() -> None:
        inside.set()
        with locked(registry()):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(registry()):
        thread.start()
        inside.wait(30)
        with locked(registry("team/other")):
            order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


def test_what_another_user_made_is_taken_whatever_his_umask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sticky folder Linux opens nobody's file for writing but the owner's (fs.protected_regular)."""
    before = os.umask(0o077)
    try:
        path = the_lock(folder)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    real = os.open

    def as_another_user(name: "os.PathLike[str]", flags: int, mode: int = 0o777) -> int:
        if Path(name).exists() and not flags & os.O_EXCL and flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied", str(name))
        return real(name, flags, mode)

    monkeypatch.setattr(os, "open", as_another_user)
    assert the_lock(folder) == path


@pytest.mark.parametrize("kind", ["link", "FIFO", "folder"])
def test_what_is_no_lock_is_told_and_not_waited_for(folder: Path, kind: str) -> None:
    path = the_lock(folder)
    path.unlink()
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "FIFO":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(StorageError) as report, locked(registry()):
        pass
    assert str(path) in report.value.message
    assert "have it removed" in str(report.value.hint)


def test_a_lock_that_may_not_be_read_names_its_owner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = the_lock(folder)

    def refused(name: "os.PathLike[str]", flags: int, mode: int = 0o777) -> int:
        if flags & os.O_EXCL:
            raise FileExistsError(17, "File exists", str(name))
        raise PermissionError(13, "Permission denied", str(name))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(StorageError, match=f"{path}.*Permission denied"), locked(registry()):
        pass


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock by another file description, as another process does."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def test_a_lock_that_is_held_for_ever_ends_the_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutex, "_LONGEST", 0.0, raising=False)
    path = the_lock(folder)
    who = f"process {os.getpid()} of {pwd.getpwuid(os.getuid()).pw_name}"
    with hold(path):
        for _ in range(2):
            with pytest.raises(PublishError, match=f"^{who} has had the lock {path}") as caught, locked(registry()):
                pass
            assert caught.value.hint
    assert the_lock(folder) == path


def test_a_wait_is_reported_with_the_process_that_has_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutex, "_SOON", 0.0, raising=False)
    path, lines = the_lock(folder), list[str]()
    entered, reported = threading.Event(), threading.Event()

    def say(words: str) -> None:
        lines.append(words)
        reported.set()

    monkeypatch.setattr(mutex, "say", say, raising=False)

    def publish() -> None:
        with locked(registry()):
            entered.set()

    thread = threading.Thread(target=publish)
    with hold(path):
        thread.start()
        assert reported.wait(30)
        assert not entered.is_set()
    thread.join(30)
    assert entered.is_set()
    (line,) = lines
    assert f"waiting for process {os.getpid()} of" in line
    assert str(path) in line
