"""The store on disks that are full or read-only, by the command line. Neither an engine nor a network is asked."""

import errno
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import torchbake
from tests.unit.layouts import archive, damage, file, put, sha256
from tests.unit.store.writers import DATA, keep, packed, stores
from torchbake.errors import DamagedError, StorageError, of_os_error
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout

pytestmark = [
    pytest.mark.store,
    pytest.mark.skipif(os.geteuid() != 0, reason="not-run: to mount a file system needs root"),
]
KEY = sha256(b"key")
ROOM = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def store(disk: Path, *words: str) -> tuple[int, Any, str]:
    """Run `torchbake store` on the layers of a disk; its exit code, its JSON and its messages."""
    env = {"TORCHBAKE_LAYERS": str(disk / "layers")}
    process = torchbake("store", *words, "--format", "json", "--matrix", str(disk / "matrix.yaml"), env=env)
    return process.returncode, json.loads(process.stdout or "null"), process.stderr


def fill(layers: LayerStore, sizes: Iterable[int]) -> None:
    for size in sizes:
        keep(layers, sha256(b"%d" % size), os.urandom(size))


def test_a_full_disk_leaves_a_sound_store(disk: Path) -> None:
    layers, layout = stores(disk)
    sizes = range(0, ROOM, 150_000)
    with pytest.raises(OSError, match="No space left") as error:
        fill(layers, sizes)
    assert isinstance(of_os_error(error.value), StorageError)
    count = len(layers.entries())
    assert 1 < count < len(sizes)
    with pytest.raises(OSError, match="No space left"), layout.write_lock() as exports:
        put(Layout(folder=exports / "a"), archive(file("a", os.urandom(ROOM))))
    assert [*disk.glob("*/.work-*")] == []
    code, text, _ = store(disk, "verify")
    assert (code, text["blobs"], text["damages"]) == (0, count, [])
    assert layers.tidy(300_000) > 0
    keep(layers, KEY)
    assert layers.find(KEY) == packed(DATA)


def test_a_read_only_store_is_read_and_nothing_else(disk: Path) -> None:
    layers = LayerStore(folder=disk / "layers")
    keep(layers, KEY)
    os.utime(layers.path(sha256(DATA)))  # as a copy of a store has other times
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with layers.in_use():
        assert layers.find(KEY) == packed(DATA)
    with pytest.raises(OSError, match="Read-only") as error, layers.turn(sha256(b"another key")):
        pass
    assert error.value.errno == errno.EROFS
    assert isinstance(of_os_error(error.value), StorageError)
    assert store(disk, "ls")[1]["layers"]["layers"][0]["key"] == KEY
    assert store(disk, "verify")[0] == 0


def test_damage_on_a_read_only_disk_is_named_and_stays(disk: Path) -> None:
    layers = LayerStore(folder=disk / "layers")
    keep(layers, KEY)
    damage(layers.path(sha256(DATA)), is_seen=False)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert store(disk, "verify")[0] == DamagedError.exit_code
    code, _, output = store(disk, "verify", "--remove-damaged")
    assert code == StorageError.exit_code
    assert str(layers.folder) in output
