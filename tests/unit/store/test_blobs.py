"""Blobs of both stores: seals, changes, locks, killed writers, and writers that want the same layer."""

import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.unit.conftest import NIGHTLY
from tests.unit.layouts import archive, damage, file, put, sha256
from tests.unit.store.writers import DATA, keep, packed, stores
from torchbake.core.paths import TOOLKIT
from torchbake.oci.manifest import Blob
from torchbake.store.blobs import StoreEntry, locked
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout

KILLS, SHARING = 60 if NIGHTLY else 25, 4


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_sound_blob_is_read_only_and_a_change_is_noticed(tmp_path: Path, *, is_seen: bool) -> None:
    store = LayerStore(folder=tmp_path)
    keep(store, sha256(b"key"))
    path, blob = store.path(sha256(DATA)), packed(DATA).layer.blob
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert store.holds(blob)
    damage(path, is_seen=is_seen)
    assert store.holds(blob) is not is_seen  # a silent change is found by who hashes it


def test_a_blob_that_is_written_again_as_it_was_is_sound(tmp_path: Path) -> None:
    store = LayerStore(folder=tmp_path)
    keep(store, sha256(b"key"))
    path = store.path(sha256(DATA))
    path.chmod(0o644)
    path.write_bytes(DATA)
    assert store.holds(packed(DATA).layer.blob)
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_a_sealed_blob_that_a_power_failure_cut_is_not_sound(tmp_path: Path) -> None:
    store = LayerStore(folder=tmp_path)
    keep(store, sha256(b"key"))
    path = store.path(sha256(DATA))
    path.chmod(0o644)
    path.write_bytes(DATA[:-1])
    os.utime(path, ns=(0, 0))
    assert not store.holds(packed(DATA).layer.blob)


def test_a_blob_that_an_image_has_twice_counts_once() -> None:
    blob, other = Blob(digest=sha256(b"a"), size=5), Blob(digest=sha256(b"b"), size=7)
    assert StoreEntry(key="a", name="b", blobs=(blob, other, blob)).size == 12


def test_an_image_with_a_flipped_bit_is_not_found(tmp_path: Path) -> None:
    layout = Layout(folder=tmp_path)
    digest = put(layout, archive(file("a")), archive(file("b")))
    assert layout.find(digest)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o444 for path in layout.files() if path.name != digest[7:])
    for path in layout.files():
        whole = path.read_bytes()
        damage(path)
        assert layout.find(digest) is None
        path.write_bytes(whole)
        assert layout.find(digest)


def test_who_waited_for_a_lock_takes_the_new_file(tmp_path: Path) -> None:
    path, holders = tmp_path / "lock", list[str]()

    def wait() -> None:
        with locked(path, fcntl.LOCK_EX, remove=True):
            holders.append("second")
            try:
                with locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    holders.append("third")
            except BlockingIOError:
                holders.append("refused")

    with locked(path, fcntl.LOCK_EX, remove=True):
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        holders.append("first")
    thread.join(10)
    assert holders == ["first", "second", "refused"]
    assert not path.exists()


def test_a_lock_makes_its_folders(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / "a/b/lock", fcntl.LOCK_EX):
            assert (tmp_path / "a/b/lock").is_file()


def run(action: str, folder: Path, times: int) -> str:
    words = (sys.executable, "-m", "tests.unit.store.writers", action, str(folder), str(times))
    process = subprocess.run(words, cwd=TOOLKIT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.usefixtures("own_processes")
def test_killed_writers_leave_a_sound_store(tmp_path: Path) -> None:
    left = json.loads(run("kill", tmp_path, KILLS))
    assert left["layers"] > 1
    assert left["images"] > 1
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    index = {f"layout/{name}" for name in (".lock", ".index.lock", "index.json", "oci-layout")}
    assert files <= {"layers/.lock", *index}
    assert [store.entries() for store in stores(tmp_path)] == [[], []]


@pytest.mark.usefixtures("own_processes")
def test_processes_that_want_one_layer_pack_it_once(tmp_path: Path) -> None:
    assert json.loads(run("share", tmp_path, SHARING)) == [0] * SHARING
    assert len([*tmp_path.glob("packed-by-*")]) == 1
    assert LayerStore(folder=tmp_path).find(sha256(b"key")) == packed(DATA)
    assert [*(tmp_path / "locks").iterdir()] == []
