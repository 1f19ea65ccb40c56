"""`teardown` in temporary folders: it stops and removes the engine that setup started, and no other one."""

import os
import signal
from pathlib import Path

import pytest

from tests.unit.processes import Process, Processes
from torchbake import cli
from torchbake.errors import SetupError
from torchbake.setup import dockerd, leftovers, probe
from torchbake.setup.dockerd import MARKER
from torchbake.setup.paths import ENGINE_DIR, EnginePaths

SETUP_FAILED = SetupError.exit_code
UNITS = "docker.service\ndocker.socket"
Streams = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _root(monkeypatch: pytest.MonkeyPatch) -> None:
    """We may do all, and nothing listens at a socket."""
    monkeypatch.setattr(probe, "rights", lambda: "root")
    monkeypatch.setattr(dockerd, "knock", lambda _: "dead")


@pytest.fixture
def paths(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> EnginePaths:
    """Of an engine that setup starts; the name is short, as a socket's must be."""
    folder = tmp_path_factory.mktemp("e")
    monkeypatch.setenv(ENGINE_DIR, str(folder))
    return EnginePaths.under(folder)


class Systemd:
    """systemctl in memory. ``refuses``: why it stops nothing."""

    def __init__(self, *running: str, refuses: str = "") -> None:
        self.running, self.refuses = set(running), refuses

    def __call__(self, process: Process) -> int:
        program, action, *units = process.command
        assert (program, action) == ("systemctl", "stop")
        if self.refuses:
            return 1
        self.running -= set(units)
        return 0


def systemd(monkeypatch: pytest.MonkeyPatch, *running: str, refuses: str = "") -> Systemd:
    value = Systemd(*running, refuses=refuses)
    Processes(value).stand_for(monkeypatch, dockerd)
    return value


def started_by_hand(paths: EnginePaths, *, pid: int = 2**30) -> None:
    """Make the leftovers of a dockerd that setup started and a signal killed."""
    for folder in (paths.exec_root, paths.data_root):
        folder.mkdir(parents=True)
    (paths.data_root / MARKER).write_text("ours")
    (paths.data_root / "layer").write_text("an image's")
    for file in (paths.pidfile, paths.config, paths.socket, paths.log):
        file.write_text("x")
    paths.pidfile.write_text(str(pid))


def teardown(*options: str) -> int:
    return cli.main(["teardown", *options])


def test_where_setup_started_nothing_there_is_nothing_to_do(paths: EnginePaths, capsys: Streams) -> None:
    assert teardown() == 0
    assert "nothing to stop" in capsys.readouterr().err
    assert not paths.state.exists()


def test_leftovers_of_a_dead_engine_go_except_images_and_log(paths: EnginePaths, capsys: Streams) -> None:
    started_by_hand(paths)
    assert teardown() == 0
    assert not any(path.exists() for path in (paths.exec_root, paths.pidfile, paths.config, paths.socket))
    assert (paths.data_root / "layer").read_text() == "an image's"
    assert paths.log.exists()
    assert not leftovers.any_left(paths)
    assert "--purge removes them" in capsys.readouterr().err


def test_a_second_teardown_finds_nothing_more(paths: EnginePaths, capsys: Streams) -> None:
    started_by_hand(paths)
    teardown()
    capsys.readouterr()
    assert teardown() == 0
    assert "nothing to stop" in capsys.readouterr().err


def test_a_pid_that_is_another_process_by_now_is_left_alone(
    paths: EnginePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pid file names this very process."""
    reached: list[object] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *signalled: reached.append(signalled))
    started_by_hand(paths, pid=os.getpid())
    assert teardown() == 0
    assert reached == []
    assert not paths.pidfile.exists()


def test_a_socket_at_which_another_engine_listens_stays(paths: EnginePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dockerd, "knock", lambda _: "answers")
    started_by_hand(paths)
    assert teardown() == 0
    assert paths.socket.exists()


def test_purge_removes_the_images_too(paths: EnginePaths, capsys: Streams) -> None:
    started_by_hand(paths)
    assert teardown("--purge") == 0
    assert not paths.data_root.exists()
    assert f"removed {paths.data_root}" in " ".join(capsys.readouterr().err.split())


def test_images_of_a_stopped_engine_can_be_purged(paths: EnginePaths) -> None:
    started_by_hand(paths)
    teardown()
    assert paths.data_root.exists()
    assert teardown("--purge") == 0
    assert not paths.data_root.exists()


def test_a_folder_that_setup_did_not_make_is_not_purged(paths: EnginePaths, capsys: Streams) -> None:
    started_by_hand(paths)
    (paths.data_root / MARKER).unlink()
    assert teardown("--purge") == SETUP_FAILED
    assert (paths.data_root / "layer").exists()
    assert "was not made by setup, and is not removed" in " ".join(capsys.readouterr().err.split())


def test_a_link_to_somebody_elses_folder_is_not_purged(paths: EnginePaths, tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("ours, of another place")
    (tmp_path / "theirs").write_text("x")
    paths.data_root.symlink_to(tmp_path)
    assert teardown("--purge") == SETUP_FAILED
    assert (tmp_path / "theirs").exists()


def test_images_that_another_engine_uses_are_not_purged(paths: EnginePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    started_by_hand(paths)
    monkeypatch.setattr(leftovers, "users_of", lambda folder: [4711] if folder == paths.data_root else [])
    assert teardown("--purge") == SETUP_FAILED
    assert (paths.data_root / "layer").exists()


def test_what_is_still_mounted_is_not_removed(paths: EnginePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    started_by_hand(paths)
    disk = paths.data_root / "disk"
    monkeypatch.setattr(leftovers, "all_mounts", lambda: [(str(disk), "/", "ext4")])
    assert teardown("--purge") == SETUP_FAILED
    assert (paths.data_root / "layer").exists()


def test_of_systemds_units_only_those_stop_that_setup_started(
    paths: EnginePaths, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    value = systemd(monkeypatch, *UNITS.split(), "containerd.service")
    paths.state.mkdir(parents=True)
    paths.units.write_text(UNITS)
    assert teardown() == 0
    assert value.running == {"containerd.service"}
    assert not paths.units.exists()
    output = " ".join(capsys.readouterr().err.split())
    assert "is stopped" in output
    assert "/var/lib/docker" in output


def test_units_that_do_not_stop_are_reported_and_stop_later(
    paths: EnginePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd(monkeypatch, *UNITS.split(), refuses="Access denied")
    paths.state.mkdir(parents=True)
    paths.units.write_text(UNITS)
    assert teardown() == SETUP_FAILED
    assert paths.units.read_text() == UNITS
    value = systemd(monkeypatch, *UNITS.split())
    assert teardown() == 0
    assert value.running == set()


def test_who_may_not_is_told_so_and_nothing_is_touched(
    paths: EnginePaths, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.setattr(probe, "rights", lambda: "no")
    started_by_hand(paths)
    assert teardown("--purge") == SETUP_FAILED
    assert "needs root" in capsys.readouterr().err
    assert leftovers.any_left(paths)
    assert (paths.data_root / "layer").exists()
