"""Which containerd is an engine's, and where the files of a snapshot are."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.engines import Daemon
from torchbake.engine import containerd
from torchbake.engine.containerd import Containerd, find_containerd
from torchbake.errors import EngineError

OWN, SYSTEM = "/run/docker/containerd/containerd.sock", "/run/containerd/containerd.sock"
OTHER = "/run/k3s/containerd/containerd.sock"
ROOTS = {
    OWN: "/var/lib/docker/containerd/daemon",
    SYSTEM: "/var/lib/containerd",
    OTHER: "/var/lib/rancher/k3s/agent/containerd",
}
ROOTS_OWN = SimpleNamespace(st_uid=0, st_mode=stat.S_IFDIR | 0o755)  # a folder that only root writes
LSTAT = Path.lstat
HEAD = "Num       RefCount Protocol Flags    Type St Inode Path\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine on which root asks, by the sockets that answer there; each tells where it keeps its data."""
    answering = dict(ROOTS)
    sockets = tmp_path / "unix"
    lines = [f"0000: 00000002 00000000 00010000 0001 01 {n} {place}" for n, place in enumerate(ROOTS)]
    sockets.write_text(HEAD + "\n".join([*lines, "0000: 00000003 00000000 00000000 0001 03 9", *lines]))

    def asked(address: str, *words: str) -> str:
        if address not in answering:
            raise EngineError("nobody listens there")
        assert words[:2] == ("plugins", "ls")
        return f"Type: io.containerd.snapshotter.v1\nExports:\n      root      {answering[address]}/io.snapshotter\n"

    monkeypatch.setenv(containerd.SWITCH, "1")
    monkeypatch.setattr(containerd, "_SOCKETS", sockets)
    monkeypatch.setattr(containerd, "_asked", asked)
    monkeypatch.setattr(Path, "lstat", lambda path: ROOTS_OWN)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    return answering


def daemon(**info: object) -> Daemon:
    made = Daemon(containerd=True)
    made.info().update({"Driver": "overlayfs", "SecurityOptions": ["name=seccomp,profile=builtin"], **info})
    return made


def test_the_engines_own_comes_before_the_systems(machine: dict[str, str]) -> None:
    assert find_containerd(daemon().engine) == Containerd(address=OWN, root=Path(ROOTS[OWN]))
    del machine[OWN]
    assert find_containerd(daemon().engine) == Containerd(address=SYSTEM, root=Path(ROOTS[SYSTEM]))
    del machine[SYSTEM]
    assert find_containerd(daemon().engine) is None


@pytest.mark.parametrize(
    "info",
    [
        {"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]},
        {"SecurityOptions": ["name=userns"]},
        {"Driver": "fuse-overlayfs"},
        {"DriverStatus": []},
    ],
    ids=["rootless", "user namespaces", "another snapshotter", "no containerd store"],
)
def test_an_engine_that_writes_its_layers_otherwise_unpacks_them_itself(
    machine: dict[str, str], info: dict[str, object]
) -> None:
    assert find_containerd(daemon(**info).engine) is None


def test_only_root_writes_where_the_engine_does(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_containerd(daemon().engine) is None


def test_without_ctr_nobody_is_asked(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert find_containerd(daemon().engine) is None


@pytest.mark.parametrize("value", [None, "", "0"])
def test_by_default_no_socket_is_looked_for(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    def refuse(*words: object) -> None:
        pytest.fail(f"asked: {words}")

    monkeypatch.setattr(containerd, "_SOCKETS", SimpleNamespace(read_text=refuse))
    monkeypatch.setattr(containerd, "_asked", refuse)
    monkeypatch.delenv("TORCHBAKE_HANDOVER")
    if value is not None:
        monkeypatch.setenv("TORCHBAKE_HANDOVER", value)
    assert find_containerd(daemon().engine) is None


FOLDERS = (*Path(OWN).parents, Path(ROOTS[OWN]), *Path(ROOTS[OWN]).parents)


@pytest.mark.parametrize(
    ("place", "uid", "mode"),
    [
        (Path(OWN), 1000, stat.S_IFSOCK | 0o660),
        *((folder, 1000, stat.S_IFDIR | 0o755) for folder in FOLDERS),
        *((folder, 0, stat.S_IFDIR | mode) for folder in FOLDERS for mode in (0o1777, 0o775)),
    ],
    ids=lambda value: f"{value:o}" if isinstance(value, int) else str(value),
)
def test_what_another_user_could_have_made_is_refused(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, place: Path, uid: int, mode: int
) -> None:
    del machine[SYSTEM]
    others = SimpleNamespace(st_uid=uid, st_mode=mode)
    monkeypatch.setattr(Path, "lstat", lambda path: others if path == place else ROOTS_OWN)
    assert find_containerd(daemon().engine) is None


def test_a_socket_that_another_user_made_is_not_asked(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Any user can name a root of the engine's, and would then say where root writes."""
    theirs = tmp_path / "containerd.sock"
    theirs.touch()
    sockets = tmp_path / "theirs"
    sockets.write_text(f"{HEAD}0000: 00000002 00000000 00010000 0001 01 1 {theirs}\n")
    machine[str(theirs)] = ROOTS[OWN]
    monkeypatch.setattr(containerd, "_SOCKETS", sockets)
    assert find_containerd(daemon().engine) == Containerd(address=str(theirs), root=Path(ROOTS[OWN]))
    monkeypatch.setattr(Path, "lstat", LSTAT)
    assert find_containerd(daemon().engine) is None


@pytest.mark.parametrize(
    ("mounts", "folder"),
    [
        ('[{"Type": "bind", "Source": "/s/1/fs", "Target": "", "Options": ["rw", "rbind"]}]', "/s/1/fs"),
        (
            '[{"Type": "overlay", "Source": "overlay", "Target": "", '
            '"Options": ["workdir=/s/2/work", "upperdir=/s/2/fs", "lowerdir=/s/1/fs"]}]',
            "/s/2/fs",
        ),
    ],
    ids=["the lowest", "on another"],
)
def test_the_files_of_a_snapshot_are_its_own(monkeypatch: pytest.MonkeyPatch, mounts: str, folder: str) -> None:
    monkeypatch.setattr(containerd, "_asked", lambda *words, **more: mounts)
    assert Containerd(address=OWN, root=Path(ROOTS[OWN])).prepare("key") == Path(folder)
