"""The store of packed layers: what counts as kept, and what killed, damaged and simultaneous runs leave."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.layouts import damage, sha256
from torchbake.errors import BuildError
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import Blob
from torchbake.store.layers import LayerStore, Packed

KEY, OTHER = sha256(b"key"), sha256(b"another key")
DATA, HEADERS = b"a layer" * 99, b"headers"


def packed(*, headers: bool = True) -> Packed:
    layer = Layer(blob=Blob(digest=sha256(DATA), size=len(DATA), media_type="tar+zstd"), diff_id=sha256(b"archive"))
    aside = Blob(digest=sha256(HEADERS), size=len(HEADERS), media_type="tar+zstd") if headers else None
    return Packed(layer=layer, names=("nvidia/a.so", "nvidia/b.so"), headers=aside)


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
    damage(store.path(sha256(data)), seen=False)
    assert store.find(KEY) == packed()
    assert store.drop_damaged(KEY)
    assert store.find(KEY) is None
    assert not store.path(sha256(DATA)).exists()


@pytest.mark.parametrize("data", [DATA, HEADERS])
def test_a_layer_with_a_flipped_bit_is_not_found(store: LayerStore, data: bytes) -> None:
    keep(store)
    damage(store.path(sha256(data)))
    assert store.find(KEY) is None
    assert store.drop_damaged(KEY)
    keep(store)
    assert store.find(KEY) == packed()


def test_a_blob_is_hashed_before_it_is_unpacked_here(store: LayerStore) -> None:
    keep(store)
    aside = packed().headers
    assert aside
    assert store.sound(aside).read_bytes() == HEADERS
    damage(store.path(aside.digest), seen=False)
    with pytest.raises(BuildError, match="damaged"):
        store.sound(aside)
    assert store.find(KEY) is None


def test_a_sound_layer_stays(store: LayerStore) -> None:
    keep(store)
    assert not store.drop_damaged(KEY)
    assert not store.drop_damaged(OTHER)
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
