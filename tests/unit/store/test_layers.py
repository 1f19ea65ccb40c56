"""The store of packed layers: what counts as kept, and what killed, damaged and simultaneous runs leave."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.unit.layouts import damage, sha256
from torchbake.errors import BuildError
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import Blob
from torchbake.store.layers import LayerStore, PackedLayer

KEY, OTHER = sha256(b"key"), sha256(b"another key")
DATA, HEADERS = b"a layer" * 99, b"headers"


def packed(*, headers: bool = True) -> PackedLayer:
    layer = Layer(blob=Blob(digest=sha256(DATA), size=len(DATA), media_type="tar+zstd"), diff_id=sha256(b"archive"))
    aside = Blob(digest=sha256(HEADERS), size=len(HEADERS), media_type="tar+zstd") if headers else None
    return PackedLayer(layer=layer, names=("nvidia/a.so", "nvidia/b.so"), headers=aside)


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(folder=tmp_path / "layers")


def keep(store: LayerStore, key: str = KEY) -> None:
    with store.turn(key) as work:
        (work / "layer").write_bytes(DATA)
        (work / "headers").write_bytes(HEADERS)
        store.add(key, packed(), {sha256(DATA): work / "layer", sha256(HEADERS): work / "headers"})


def test_what_was_added_is_found_as_it_was_with_its_files(store: LayerStore) -> None:
    assert store.find(KEY) is None
    keep(store)
    assert store.find(KEY) == packed()
    assert store.path(sha256(DATA)).read_bytes() == DATA
    assert store.find(OTHER) is None


def test_a_layer_without_headers_is_found_too(store: LayerStore, tmp_path: Path) -> None:
    (tmp_path / "layer").write_bytes(DATA)
    store.add(KEY, packed(headers=False), {sha256(DATA): tmp_path / "layer"})
    assert store.find(KEY) == packed(headers=False)


@pytest.mark.parametrize("damage", ["shorter", "gone", "headers gone", "record cut", "record of something else"])
def test_what_is_not_whole_is_not_found(store: LayerStore, damage: str) -> None:
    keep(store)
    (record,) = (store.folder / "wheels").iterdir()
    blob, headers = store.path(sha256(DATA)), store.path(sha256(HEADERS))
    damages: dict[str, Callable[[], object]] = {
        "shorter": lambda: blob.write_bytes(DATA[:-1]),
        "gone": blob.unlink,
        "headers gone": headers.unlink,
        "record cut": lambda: record.write_text(record.read_text()[:-20]),
        "record of something else": lambda: record.write_text('{"layer": []}'),
    }
    damages[damage]()
    assert store.find(KEY) is None
    keep(store)
    assert store.find(KEY) == packed()


@pytest.mark.parametrize("data", [DATA, HEADERS])
def test_a_layer_whose_bytes_changed_is_dropped(store: LayerStore, data: bytes) -> None:
    keep(store)
    damage(store.path(sha256(data)), is_seen=False)
    assert store.find(KEY) == packed()
    assert store.drop_damaged(time.time() + 9) == []  # not used since
    assert store.drop_damaged(time.time() - 9) == [packed().wheel]
    assert store.find(KEY) is None
    assert not store.path(sha256(DATA)).exists()


@pytest.mark.parametrize("data", [DATA, HEADERS])
def test_a_layer_with_a_flipped_bit_is_not_found(store: LayerStore, data: bytes) -> None:
    keep(store)
    damage(store.path(sha256(data)))
    assert store.find(KEY) is None
    assert store.drop_damaged(0) == [packed().wheel]
    keep(store)
    assert store.find(KEY) == packed()


def test_a_blob_is_hashed_before_it_is_unpacked_here(store: LayerStore) -> None:
    keep(store)
    aside = packed().headers
    assert aside
    assert store.sound(aside).read_bytes() == HEADERS
    damage(store.path(aside.digest), is_seen=False)
    with pytest.raises(BuildError, match="damaged"):
        store.sound(aside)
    assert store.find(KEY) is None


def test_a_sound_layer_stays(store: LayerStore) -> None:
    keep(store)
    assert store.drop_damaged(0) == []
    assert store.find(KEY) == packed()


def test_a_turn_that_ends_badly_leaves_nothing(store: LayerStore) -> None:
    def end_badly() -> None:
        with store.turn(KEY) as work:
            (work / "half").write_bytes(DATA)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        end_badly()
    assert store.find(KEY) is None
    assert not list(store.folder.glob(".work-*"))


def test_one_key_is_one_runs_at_a_time_and_another_need_not_wait(store: LayerStore) -> None:
    order = list[str]()

    def wait() -> None:
        with store.turn(KEY):
            order.append("the second")

    with store.turn(KEY), store.turn(OTHER):
        second = threading.Thread(target=wait)
        second.start()
        time.sleep(0.1)
        order.append("the first")
    second.join(10)
    assert order == ["the first", "the second"]


# --- what is removed


def keep_of_size(store: LayerStore, name: str, size: int, used: float) -> str:
    data, key = name.encode() * size, sha256(name.encode())
    blob = Blob(digest=sha256(data), size=len(data), media_type="tar+zstd")
    layer = Layer(blob=blob, diff_id=sha256(b"archive"))
    with store.turn(key) as work:
        (work / "layer").write_bytes(data)
        names = (f"{name}_x-1.0.dist-info/METADATA",)
        store.add(key, PackedLayer(layer=layer, names=names), {blob.digest: work / "layer"})
    os.utime(store.folder / "wheels" / f"{key[7:]}.json", (used, used))
    return key


def names(store: LayerStore) -> list[str]:
    return [entry.name for entry in store.entries()]


def test_the_layers_that_were_used_longest_ago_go_first(store: LayerStore) -> None:
    now = time.time()
    oldest, *_ = [keep_of_size(store, name, 1000, now - 99 + number) for number, name in enumerate("abcd")]
    assert names(store) == ["d-x 1.0", "c-x 1.0", "b-x 1.0", "a-x 1.0"]
    assert store.tidy(4000) == 0
    assert store.find(oldest)  # which is a use
    surplus = store.surplus(2999)
    size = sum(path.stat().st_size for path in surplus)
    assert store.tidy(2999) == size > 2000
    assert names(store) == ["a-x 1.0", "d-x 1.0"]
    assert not any(path.exists() for path in surplus)
    assert store.tidy(0) > 2000
    assert (names(store), store.files()) == ([], [])


def test_a_blob_of_two_layers_stays_as_long_as_one_needs_it(store: LayerStore) -> None:
    keep(store)
    keep(store, OTHER)
    os.utime(store.folder / "wheels" / f"{OTHER[7:]}.json", (1, 1))
    keep_of_size(store, "a", 100, 2)
    store.tidy(len(DATA) + len(HEADERS))
    assert [entry.key for entry in store.entries()] == [KEY]
    assert store.find(KEY) == packed()


def test_a_clock_that_was_set_back_makes_no_layer_stay_for_ever(store: LayerStore) -> None:
    now = time.time()
    keep_of_size(store, "a", 1000, now + 10**7)  # packed while the clock was wrong
    keep_of_size(store, "b", 1000, now - 10**7)
    used = keep_of_size(store, "c", 1000, now + 10**7)
    assert [entry.last_use for entry in store.entries() if entry.name != "b-x 1.0"] == [None, None]
    assert store.find(used)
    store.tidy(2000)
    assert names(store) == ["c-x 1.0", "b-x 1.0"]


def test_nothing_is_removed_while_a_build_uses_the_store(store: LayerStore) -> None:
    keep(store)
    for using in (store.in_use(), store.turn(OTHER)):
        with using:
            assert store.tidy(0) == 0
            assert store.find(KEY)
    assert store.tidy(0) > 0


def test_what_lost_a_blob_is_dropped_with_the_others(store: LayerStore) -> None:
    keep(store)
    keep_of_size(store, "a", 1000, 1)
    store.path(sha256(DATA)).unlink()
    store.tidy(999)
    assert [path.name for path in (store.folder / "wheels").iterdir()] == []


def test_a_store_that_cannot_be_written_can_be_read(store: LayerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("utime", "open", "mkdir"):
        monkeypatch.setattr(os, name, refuse)
    with store.in_use():
        assert store.find(KEY) == packed()
    with pytest.raises(OSError, match="Read-only"), store.turn(OTHER):
        pass
