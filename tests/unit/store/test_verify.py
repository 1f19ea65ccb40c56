"""Every blob is hashed; what is damaged is named with all that needs it, and removed only when it is asked for."""

from pathlib import Path

import pytest

from tests.unit.layouts import archive, blobs_of, damage, file, put, sha256
from tests.unit.store.writers import DATA, keep, packed, stores
from torchbake.errors import StorageError
from torchbake.oci.labels import ID
from torchbake.store.blobs import Blobs
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout
from torchbake.store.verify import Damage, VerifyResult, remove_damaged, verify

KEY = sha256(b"key")


@pytest.fixture
def both(tmp_path: Path) -> tuple[LayerStore, Layout]:
    layers, images = stores(tmp_path)
    keep(layers, KEY)
    with images.write_lock() as exports:
        config = {"config": {"Labels": {ID: "image-1"}}}
        images.take(exports / "a", put(Layout(folder=exports / "a"), archive(file("a")), config=config))
    return layers, images


def find(both: tuple[Blobs, ...]) -> VerifyResult:
    return verify(both, lambda path: None)


def test_a_sound_store_has_no_damages(both: tuple[LayerStore, Layout]) -> None:
    paths = list[Path]()
    verified = verify(both, paths.append)
    assert verified == VerifyResult(blobs=4, bytes=sum(path.stat().st_size for path in paths), damages=())
    assert sorted(paths) == sorted([*both[0].files(), *both[1].files()])


def test_a_file_of_both_stores_is_hashed_once(both: tuple[LayerStore, Layout]) -> None:
    layers, images = both
    images.path(sha256(DATA)).hardlink_to(layers.path(sha256(DATA)))
    paths = list[Path]()
    assert verify(both, paths.append).blobs == len(paths) == 4
    damage(layers.path(sha256(DATA)))
    assert len(find(both).damages) == 2


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_flipped_bit_is_found(both: tuple[LayerStore, Layout], *, is_seen: bool) -> None:
    layers, images = both
    names = {"bytecode of nvidia", "image-1", images.entries()[0].key}  # the last if its manifest or config is damaged
    for path in (*layers.files(), *images.files()):
        whole = path.read_bytes()
        damage(path, is_seen=is_seen)
        (one,) = [one for one in find(both).damages if one.what == "damaged"]
        assert (one.digest, one.file) == (f"sha256:{path.name}", str(path))
        assert len(one.needed_by) == 1
        assert names.issuperset(one.needed_by)
        path.write_bytes(whole)
    assert find(both).damages == ()


def test_a_blob_that_is_cut_or_gone_is_found(both: tuple[LayerStore, Layout]) -> None:
    layers, images = both
    layer, path = layers.path(sha256(DATA)), blobs_of(images, images.entries()[0].key)[0]
    layer.chmod(0o644)
    layer.write_bytes(DATA[:-1])
    path.unlink()
    first, second = find(both).damages
    needed_by = ("bytecode of nvidia",)
    assert first == Damage(digest=sha256(DATA), file=str(layer), what="damaged", needed_by=needed_by)
    assert second == Damage(digest=f"sha256:{path.name}", file=str(path), what="missing", needed_by=("image-1",))


def test_damaged_blobs_are_removed_and_the_store_is_sound(both: tuple[LayerStore, Layout]) -> None:
    layers, images = both
    keep(layers, sha256(b"another key"), b"another layer")
    for path in (layers.path(sha256(DATA)), images.files()[0]):
        damage(path, is_seen=False)
    remove_damaged(both)
    assert find(both).damages == ()
    assert layers.find(KEY) is None
    assert (len(layers.entries()), images.entries()) == (1, [])
    keep(layers, KEY)
    assert layers.find(KEY) == packed(DATA)


def test_nothing_is_removed_from_a_store_that_a_build_uses(both: tuple[LayerStore, Layout]) -> None:
    damage(both[0].path(sha256(DATA)))
    with both[0].in_use(), pytest.raises(StorageError):
        remove_damaged(both)
    assert len(find(both).damages) == 1


def test_stores_that_do_not_exist_are_not_made(tmp_path: Path) -> None:
    none = stores(tmp_path)
    assert find(none) == VerifyResult(blobs=0, bytes=0, damages=())
    remove_damaged(none)
    assert [*tmp_path.iterdir()] == []
