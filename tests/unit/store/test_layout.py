"""Packed images on disk: which are whole, how an engine is handed one, and what stays."""

import contextlib
import fcntl
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.layouts import archive, blobs_of, file, put, sha256
from torchbake.errors import BuildError
from torchbake.oci.labels import ID
from torchbake.oci.manifest import MANIFEST, Blob
from torchbake.store.layout import Layout

SHARED, OWN, OTHER = (archive(file(name, name.encode() * 999)) for name in ("shared", "own", "other"))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(folder=tmp_path / "layout")


def names(layout: Layout) -> set[str]:
    """Return the digests of all blobs in the layout."""
    return {f"sha256:{path.name}" for path in layout.blobs.iterdir()}


def listed(layout: Layout) -> list[str]:
    return [entry["digest"] for entry in json.loads((layout.folder / "index.json").read_text())["manifests"]]


def all_of(layout: Layout, *digests: str) -> set[str]:
    return {*digests} | {f"sha256:{path.name}" for digest in digests for path in blobs_of(layout, digest)}


def exported(layout: Layout, exports: Path, *layers: bytes) -> str:
    """An image that a build exported, taken in."""
    export = exports / "target"
    digest = put(Layout(folder=export), *layers)
    layout.take(export, digest)
    return digest


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """As another process holds it that exports."""
    layout.folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(layout.folder / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(handle)


# --- find images


def test_a_whole_image_is_found(layout: Layout) -> None:
    digest = put(layout, SHARED, OWN)
    manifest = layout.find(digest)
    assert manifest
    assert manifest.digest == digest
    assert [layout.path(blob.digest) for blob in manifest.blobs] == blobs_of(layout, digest)


def test_an_image_that_was_taken_in_is_found_by_its_config(layout: Layout, tmp_path: Path) -> None:
    """Most engines know an image by its config; also their images stay, and are sent under their manifest's digest."""
    export = Layout(folder=tmp_path / "export")
    digest = put(export, OWN)
    manifest = export.find(digest)
    assert manifest
    assert export.find(manifest.config.digest) is None  # nothing says that it is an image here
    layout.take(export.folder, digest)
    actual = layout.find(manifest.config.digest)
    assert actual == manifest
    assert b"".join(layout.archive(manifest.config.digest)) == b"".join(layout.archive(digest))
    layout.tidy([manifest.config.digest])
    assert layout.find(digest) == manifest


def test_nothing_is_found_where_there_is_no_folder(layout: Layout) -> None:
    assert layout.find(sha256(b"")) is None
    assert not layout.folder.exists()


@pytest.mark.parametrize("number", [0, 1, 2], ids=["first layer", "last layer", "config"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_an_image_with_a_damaged_blob_is_not_found(layout: Layout, number: int, damage: Any) -> None:
    digest = put(layout, SHARED, OWN)
    damage(blobs_of(layout, digest)[number])
    assert layout.find(digest) is None


def test_a_manifest_under_the_name_of_another_is_not_found(layout: Layout) -> None:
    digest, other = put(layout, SHARED), put(layout, OWN)
    layout.path(digest).write_bytes(layout.path(other).read_bytes())
    assert layout.find(digest) is None
    assert layout.find(other)


@pytest.mark.parametrize("number", [0, 1], ids=["layer", "config"])
def test_what_is_no_manifest_is_not_found(layout: Layout, number: int) -> None:
    assert layout.find(f"sha256:{blobs_of(layout, put(layout, SHARED))[number].name}") is None


def test_an_image_is_found_by_the_digest_of_its_config(layout: Layout, tmp_path: Path) -> None:
    """That is the image's ID in Docker's classic store."""
    digest, other = (exported(layout, tmp_path / "exports", SHARED, layer) for layer in (OWN, OTHER))
    for one in (digest, other):
        manifest = layout.find(f"sha256:{blobs_of(layout, one)[-1].name}")
        assert manifest
        assert manifest.digest == one
    layout.tidy([f"sha256:{blobs_of(layout, other)[-1].name}"])
    assert (listed(layout), names(layout)) == ([other], all_of(layout, other))


def test_of_one_image_packed_twice_the_later_is_found(layout: Layout, tmp_path: Path) -> None:
    for packing in ("zstd", "gzip", "zstd"):
        digest = put(Layout(folder=tmp_path / "export"), SHARED, OWN, packing=packing)
        layout.take(tmp_path / "export", digest)
        assert listed(layout) == [digest]
        manifest = layout.find(f"sha256:{blobs_of(layout, digest)[-1].name}")
        assert manifest
        assert manifest.digest == digest


def test_packed_layers_are_known_by_what_they_unpack_to(layout: Layout, tmp_path: Path) -> None:
    digest = exported(layout, tmp_path / "exports", SHARED, OWN)
    assert [layout.path(layout.layers()[sha256(layer)].digest) for layer in (SHARED, OWN)] == [
        *blobs_of(layout, digest)[:-1]
    ]


# --- what an engine is handed


def unpacked(layout: Layout, digest: str) -> dict[str, bytes]:
    """The files of an image's archive; each name is there once."""
    stream = io.BytesIO(b"".join(layout.archive(digest)))
    with tarfile.open(fileobj=stream) as packed:
        members = packed.getmembers()
        files = {member.name: packed.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    assert len(files) == len(members)
    return files


def test_an_archive_is_a_layout_of_one_image(layout: Layout) -> None:
    digest, other = put(layout, SHARED, OWN), put(layout, SHARED, OTHER)
    files = unpacked(layout, digest)
    assert json.loads(files.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    (for_classic,) = json.loads(files.pop("manifest.json"))
    *layers, config = (f"blobs/sha256/{path.name}" for path in blobs_of(layout, digest))
    assert (for_classic["Config"], for_classic["Layers"]) == (config, layers)
    assert for_classic["RepoTags"] is None
    index = json.loads(files.pop("index.json"))
    assert index["schemaVersion"] == 2
    (entry,) = index["manifests"]
    size = layout.path(digest).stat().st_size
    assert entry == {"mediaType": MANIFEST, "digest": digest, "size": size}
    assert {name: sha256(data) for name, data in files.items()} == {
        f"blobs/sha256/{name.removeprefix('sha256:')}": name for name in all_of(layout, digest)
    }
    assert other not in files


def test_a_layer_that_an_image_has_twice_is_in_its_archive_once(layout: Layout) -> None:
    assert len(unpacked(layout, put(layout, SHARED, OWN, SHARED))) == 3 + len(("manifest", "config", "SHARED", "OWN"))


@given(size=st.one_of(st.integers(0, 1100), st.sampled_from([2**20 - 1, 2**20, 2**20 + 1])))
def test_an_archive_holds_blobs_of_any_size(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    layout = Layout(folder=tmp_path_factory.mktemp("layout"))
    digest = put(layout, bytes(size), packing="tar")
    stream = b"".join(layout.archive(digest))
    assert len(stream) % tarfile.BLOCKSIZE == 0
    assert stream.endswith(bytes(2 * tarfile.BLOCKSIZE))  # as the format wants it at its end
    assert unpacked(layout, digest)[f"blobs/sha256/{sha256(bytes(size)).removeprefix('sha256:')}"] == bytes(size)


def test_there_is_no_archive_of_an_image_that_is_not_whole(layout: Layout) -> None:
    digest = put(layout, SHARED, OWN)
    blobs_of(layout, digest)[0].unlink()
    with pytest.raises(BuildError, match=digest) as error:
        list(layout.archive(digest))
    assert error.value.hint
    assert "--no-cache" in error.value.hint


# --- what builds put there


def test_an_exported_image_is_found_and_listed(layout: Layout) -> None:
    with layout.write_lock() as exports:
        digest = exported(layout, exports, SHARED, OWN)
    assert layout.find(digest)
    assert listed(layout) == [digest]
    assert json.loads((layout.folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}


def test_images_that_share_a_layer_have_it_once(layout: Layout) -> None:
    with layout.write_lock() as exports:
        digests = [exported(layout, exports, SHARED, own) for own in (OWN, OTHER)]
    assert listed(layout) == sorted(digests)
    assert all(map(layout.find, digests))
    assert len(names(layout)) == len(all_of(layout, *digests)) == 2 * 3 + 1


def test_a_damaged_layer_is_replaced(layout: Layout) -> None:
    with layout.write_lock() as exports:
        digest = exported(layout, exports, SHARED, OWN)
        layer = blobs_of(layout, digest)[0]
        layer.write_bytes(layer.read_bytes()[:-1])
        assert layout.find(digest) is None
        assert exported(layout, exports, SHARED, OWN) == digest
    assert layout.find(digest)


def test_two_runs_have_folders_of_their_own_which_go_with_them(layout: Layout) -> None:
    with layout.write_lock() as mine, layout.write_lock() as theirs:
        assert mine != theirs
        (theirs / "half a layer").write_bytes(b"?")
        digest = exported(layout, mine, SHARED)
    assert not mine.exists()
    assert not theirs.exists()
    assert layout.find(digest)


def test_entries_are_the_listed_images_by_their_ids(layout: Layout, tmp_path: Path) -> None:
    """An image whose manifest or config is damaged is an entry too, so that it can be removed."""
    digests = {}
    for name in ("b", "a", ""):
        config = {"config": {"Labels": {ID: name} if name else {}}}
        digests[name] = put(Layout(folder=tmp_path / "export"), SHARED, name.encode(), config=config)
        layout.take(tmp_path / "export", digests[name])
    entries = layout.entries()
    assert [(entry.name, entry.key) for entry in entries] == [(name, digests[name]) for name in ("", "a", "b")]
    for entry in entries:
        assert {blob.digest for blob in entry.blobs} == all_of(layout, entry.key)
        assert entry.size == sum(layout.path(digest).stat().st_size for digest in all_of(layout, entry.key))
    file_of_a = blobs_of(layout, digests["a"])[-1]
    file_of_a.chmod(0o644)
    file_of_a.write_bytes(blobs_of(layout, digests["b"])[-1].read_bytes())
    layout.path(digests["b"]).unlink()
    assert {entry.key: entry.name for entry in layout.entries()} == dict.fromkeys(digests.values(), "")
    (lost,) = (entry for entry in layout.entries() if entry.key == digests["b"])
    assert (lost.blobs, lost.size) == ((Blob(digest=digests["b"], size=0),), 0)
    layout.drop_incomplete()
    assert listed(layout) == [digests[""]]


def test_configs_and_layers_are_of_all_sound_images(layout: Layout, tmp_path: Path) -> None:
    own, other = (exported(layout, tmp_path, SHARED, layer) for layer in (OWN, OTHER))
    configs = {image: f"sha256:{blobs_of(layout, image)[-1].name}" for image in (own, other)}
    assert layout.configs() == frozenset(configs.values())
    assert layout.layers().keys() == {sha256(layer) for layer in (SHARED, OWN, OTHER)}
    blobs_of(layout, other)[0].unlink()
    assert layout.configs() == frozenset()
    assert exported(layout, tmp_path, SHARED, OWN) == own
    blobs_of(layout, other)[1].unlink()
    assert layout.configs() == {configs[own]}
    assert layout.layers().keys() == {sha256(layer) for layer in (SHARED, OWN)}


def test_parts_of_an_image_may_come_one_by_one(layout: Layout, tmp_path: Path) -> None:
    digest = put(Layout(folder=tmp_path / "other"), SHARED)
    manifest = Layout(folder=tmp_path / "other").get(digest)
    layer, config = blobs_of(Layout(folder=tmp_path / "other"), digest)
    layout.blobs.mkdir(parents=True)
    layout.add(layer, manifest.layers[0])
    assert not layer.exists()
    assert layout.find(digest) is None
    layout.write(manifest, config.read_bytes())
    assert layout.get(digest) == manifest


# --- what stays


def test_tidying_keeps_what_images_need_and_drops_the_rest(layout: Layout) -> None:
    with layout.write_lock() as exports:
        image, removed = (exported(layout, exports, SHARED, own) for own in (OWN, OTHER))
    needs = all_of(layout, image)
    dropped = names(layout) - needs
    size = sum(layout.path(name).stat().st_size for name in dropped)
    assert layout.tidy([image]) == size > 0
    assert names(layout) == needs
    assert layout.find(image)
    assert layout.find(removed) is None
    assert listed(layout) == [image]


def test_tidying_again_frees_nothing(layout: Layout) -> None:
    image = put(layout, SHARED)
    put(layout, OWN)
    assert layout.tidy([image]) > 0
    assert layout.tidy([image]) == 0


def test_tidying_does_not_mind_images_that_are_elsewhere(layout: Layout) -> None:
    image = put(layout, SHARED)
    assert layout.tidy([sha256(b"in the engine only"), image]) == 0
    assert layout.find(image)
    assert listed(layout) == [image]


def test_an_image_that_is_not_whole_is_dropped(layout: Layout) -> None:
    digest = put(layout, SHARED, OWN)
    blobs_of(layout, digest)[0].unlink()
    layout.tidy([digest])
    assert not names(layout)
    assert listed(layout) == []


def test_nothing_is_tidied_while_somebody_exports(layout: Layout) -> None:
    put(layout, SHARED)
    there = names(layout)
    with locked(layout):
        assert layout.tidy([]) == 0
        assert names(layout) == there
    assert layout.tidy([]) > 0
    assert not names(layout)


def test_who_writes_is_one_who_exports_until_that_ends_badly(layout: Layout) -> None:
    put(layout, SHARED)
    with contextlib.suppress(KeyboardInterrupt), layout.write_lock() as exports:
        assert layout.tidy([]) == 0
        raise KeyboardInterrupt
    assert not exports.exists()
    assert layout.tidy([]) > 0


def test_what_a_killed_run_left_is_dropped(layout: Layout) -> None:
    image = put(layout, SHARED)
    left = layout.folder / ".work-killed/target/ingest/1/data"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half a layer")
    for name in (".index.json.a1b2", ".oci-layout.a1b2", "blobs/sha256/.a1b2"):
        (layout.folder / name).write_bytes(b"half a file")
    assert {path.name for path in layout.files()} == {digest[7:] for digest in all_of(layout, image)}
    layout.tidy([image])
    assert {path.name for path in layout.folder.glob(".*")} == {".lock"}
    assert set(layout.blobs.iterdir()) == set(layout.files())
    assert layout.find(image)


def test_there_is_nothing_to_tidy_where_there_is_no_folder(layout: Layout) -> None:
    assert layout.tidy([]) == 0
    assert not layout.folder.exists()


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"manifests": [{}]}', '{"manifests": 1}'])
def test_a_damaged_index_is_written_anew(layout: Layout, text: str) -> None:
    with layout.write_lock() as exports:
        first = exported(layout, exports, SHARED)
        (layout.folder / "index.json").write_text(text)
        second = exported(layout, exports, OWN)
    assert layout.find(first)
    assert listed(layout) == [second]
    layout.tidy([first, second])
    assert listed(layout) == sorted([first, second])


@given(images=st.lists(st.sets(st.integers(0, 5), min_size=1), max_size=5, unique_by=frozenset), data=st.data())
def test_tidying_keeps_exactly_what_is_needed(
    tmp_path_factory: pytest.TempPathFactory, images: list[set[int]], data: st.DataObject
) -> None:
    layout = Layout(folder=tmp_path_factory.mktemp("layout"))
    digests = [put(layout, *(archive(file(str(number))) for number in sorted(image))) for image in images]
    kept_digests = data.draw(st.sets(st.sampled_from(digests))) if digests else set()
    needs = all_of(layout, *kept_digests)
    layout.tidy(kept_digests)
    assert {f"sha256:{path.name}" for path in layout.blobs.glob("*")} == needs
