"""One image, read from each place, and what places do wrong."""

import gzip
import json
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engines import Daemon
from tests.unit.layouts import archive, damage, file, put, saved, saved_before_docker_25, sha256
from tests.unit.registries import MemoryRegistry, Store
from torchbake.contents.layer_cache import LayerCache
from torchbake.contents.model import Inventory
from torchbake.contents.read import ImageReader
from torchbake.contents.scan import LayerScanner
from torchbake.errors import EngineError, RegistryError, TorchbakeError, UsageError
from torchbake.oci.manifest import DOCKER, INDEX, MANIFEST, NO_IMAGE, Manifest
from torchbake.store.layout import Layout

ENTRIES = [
    [file("a", b"123"), file("v/x-1.dist-info/METADATA", b"Name: x\nVersion: 1"), file("b", b"45")],
    [file(".wh.b"), file("c", b"6")],
    [file("a", b"7890")],
]
LAYERS = [archive(*entries) for entries in ENTRIES]
CONFIG = {"os": "linux", "architecture": "amd64", "config": {"Env": ["A=1"]}}
STEPS = {"history": [{"created_by": "one"}, {"created_by": "none", "empty_layer": True}, *({"created_by": "x"},) * 2]}
FULL = json.dumps({**CONFIG, **STEPS, "rootfs": {"diff_ids": [*map(sha256, LAYERS)]}}).encode()


@pytest.fixture
def reader() -> ImageReader:
    return ImageReader(platform="linux/amd64", cache=LayerCache(folder=None, scanner=LayerScanner()))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(folder=tmp_path / "layout")


def write_index(layout: Layout, *digests: str, **more: Any) -> None:
    entries = [{"mediaType": MANIFEST, "digest": digest, "size": 1, **more} for digest in digests]
    (layout.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))


def pushed(layout: Layout, digest: str, kind: str = MANIFEST) -> MemoryRegistry:
    """Return a registry with the blobs of a layout, and the manifest as the tag `cpu`."""
    manifest = Manifest(data=layout.path(digest).read_bytes(), media_type=kind)
    blobs = {sha256(path.read_bytes()): path.read_bytes() for path in layout.files()}
    return MemoryRegistry(Store(tags={"cpu": digest}, manifests={digest: manifest}, blobs=blobs))


def contents_of(inventory: Inventory) -> tuple[object, ...]:
    """Return all that every place says alike of an image."""
    sizes = [layer.size for layer in inventory.layers]
    return inventory.files, inventory.packages, sizes, inventory.platform, inventory.config["config"]


def saved_by_podman() -> bytes:
    """Write the image as `podman save` does: layers by their diff IDs, with a link to each by its own name."""
    names = [f"{sha256(layer).removeprefix('sha256:')}.tar" for layer in LAYERS]
    links = [
        file(f"{number}/layer.tar", type=tarfile.SYMTYPE, linkname=f"../{name}") for number, name in enumerate(names)
    ]
    config = f"{sha256(FULL).removeprefix('sha256:')}.json"
    text = json.dumps([{"Config": config, "RepoTags": ["localhost/x:1"], "Layers": names}]).encode()
    return archive(*map(file, names, LAYERS), *links, file(config, FULL), file("manifest.json", text))


def test_every_place_gives_the_same_contents(reader: ImageReader, layout: Layout, tmp_path: Path) -> None:
    inventories = dict[str, Inventory]()
    for packing in ("zstd", "gzip", "tar"):
        digest = put(layout, *LAYERS, packing=packing, config=CONFIG)
        write_index(layout, digest)
        inventories[f"layout, {packing}"] = one = reader.layout("x", layout.folder)
        assert (one.digest, reader.layout("x", layout.folder, digest).digest) == (digest, digest)
        assert [layer.compressed for layer in one.layers] == [
            layout.path(layer.digest).stat().st_size for layer in one.layers
        ]
        for kind in (MANIFEST, DOCKER):
            inventories[f"registry, {packing}"] = reader.registry("x", pushed(layout, digest, kind), "cpu")
        path = tmp_path / "x.tar"
        path.write_bytes(archive(*_files_of(layout)))
        inventories[f"archive, {packing}"] = one = reader.archive("x", path)
        assert all((layer.compressed is None) == (packing == "tar") for layer in one.layers)
        shutil.rmtree(layout.folder)
    archives = {"new": saved(FULL, *LAYERS), "old": saved_before_docker_25(FULL, *LAYERS), "podman": saved_by_podman()}
    for name, data in archives.items():
        for pack in (bytes, gzip.compress):
            path.write_bytes(pack(data))
            inventories[f"{name} docker, {pack}"] = one = reader.archive("x", path)
            assert one.digest == sha256(FULL)
            assert [layer.digest for layer in one.layers] == [*map(sha256, LAYERS)]
            assert [layer.step for layer in one.layers] == ["one", "x", "x"]
    first, *others = map(contents_of, inventories.values())
    assert [others.index(other) for other in others if other != first] == []
    visible = one.visible
    assert {path: visible[path].size for path in ("a", "c")} == {"a": 4, "c": 1}
    assert [package.name for package in one.packages] == ["x"]


def _files_of(layout: Layout) -> list[Any]:
    paths = sorted(path for path in layout.folder.rglob("*") if path.is_file())
    return [file(f"./{path.relative_to(layout.folder)}", path.read_bytes()) for path in paths]


def test_an_engine_is_read_once_and_then_from_the_cache(reader: ImageReader, tmp_path: Path) -> None:
    cached = replace(reader, cache=LayerCache(folder=tmp_path, scanner=LayerScanner()))
    for containerd in (False, True):
        daemon = Daemon(containerd=containerd)
        image = daemon.hold(sha256(FULL), "acme/pytorch:cpu")
        daemon.archives[image] = saved(FULL, *LAYERS)
        first = cached.engine("x", daemon.engine, image)
        assert first.digest == image
        daemon.archives.clear()
        assert cached.engine("x", daemon.engine, image) == first


def test_a_layer_that_is_there_twice_is_twice_in_the_image(reader: ImageReader, layout: Layout, tmp_path: Path) -> None:
    layers = [LAYERS[0], LAYERS[1], LAYERS[0]]
    config = json.dumps({**CONFIG, "rootfs": {"diff_ids": [*map(sha256, layers)]}}).encode()
    path = tmp_path / "x.tar"
    path.write_bytes(saved_before_docker_25(config, *layers))
    write_index(layout, put(layout, *layers, config=CONFIG))
    for inventory in (reader.archive("x", path), reader.layout("x", layout.folder)):
        assert [layer.size for layer in inventory.layers] == [23, 1, 23]
        assert inventory.visible["b"].layer == 2


def test_an_index_is_read_for_one_platform_without_attestations(reader: ImageReader, layout: Layout) -> None:
    amd, arm = (
        put(layout, LAYERS[at], config={**CONFIG, "architecture": name}) for at, name in ((0, "amd64"), (2, "arm64"))
    )
    attestation = put(layout, LAYERS[1])
    system, _, machine = NO_IMAGE.partition("/")
    entries = [
        _entry(attestation, system, machine), _entry(arm, "linux", "arm64", variant="v8"), _entry(amd, "linux", "amd64")
    ]  # fmt: skip
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
    layout.path(sha256(index)).write_bytes(index)
    write_index(layout, sha256(index), mediaType=INDEX)
    registry = pushed(layout, sha256(index), INDEX)
    registry.store.manifests |= {
        digest: Manifest(data=layout.path(digest).read_bytes(), media_type=MANIFEST) for digest in (amd, arm)
    }
    for platform, digest, words in (("linux/amd64", amd, "linux/amd64"), ("linux/arm64/v8", arm, "linux/arm64")):
        one = replace(reader, platform=platform)
        for inventory in (one.layout("x", layout.folder), one.registry("x", registry, "cpu")):
            assert (inventory.digest, inventory.platform) == (digest, words)
    with pytest.raises(UsageError, match=r"has no image for linux/s390x") as error:
        replace(reader, platform="linux/s390x").layout("x", layout.folder)
    assert error.value.sentence.endswith("--platform linux/arm64/v8 or --platform linux/amd64")


def _entry(digest: str, system: str, machine: str, **more: str) -> Mapping[str, Any]:
    return {
        "mediaType": MANIFEST,
        "digest": digest,
        "size": 1,
        "platform": {"os": system, "architecture": machine, **more},
    }


def test_a_folder_of_several_images_asks_for_one(reader: ImageReader, layout: Layout) -> None:
    digests = [put(layout, layer) for layer in LAYERS]
    write_index(layout, *digests)
    with pytest.raises(UsageError, match="holds 3 images"):
        reader.layout("x", layout.folder)
    assert reader.layout("x", layout.folder, digests[1]).visible.keys() == {"c"}


def test_damage_in_a_folder_is_an_error_that_names_the_blob(reader: ImageReader, layout: Layout) -> None:
    for position in range(5):
        digest = put(layout, *LAYERS)
        write_index(layout, digest)
        blobs = [*json.loads(layout.path(digest).read_text())["layers"]]
        blobs += [json.loads(layout.path(digest).read_text())["config"], {"digest": digest}]
        damage(layout.path(blobs[position]["digest"]))
        with pytest.raises(EngineError) as error:
            reader.layout("x", layout.folder)
        assert blobs[position]["digest"][7:19] in error.value.message
        layout.path(blobs[position]["digest"]).unlink()
        with pytest.raises(EngineError, match=blobs[position]["digest"]):
            reader.layout("x", layout.folder)
        shutil.rmtree(layout.folder)


def test_a_registry_that_serves_something_else_is_refused(reader: ImageReader, layout: Layout) -> None:
    digest = put(layout, *LAYERS)
    registry = pushed(layout, digest)
    with pytest.raises(RegistryError, match="does not have cuda"):
        reader.registry("x", registry, "cuda")
    layer = json.loads(layout.path(digest).read_text())["layers"][1]["digest"]
    registry.store.blobs[layer] = b"something else"
    with pytest.raises(RegistryError, match=layer):
        reader.registry("x", registry, "cpu")


def test_a_manifest_without_an_image_is_refused(reader: ImageReader, layout: Layout) -> None:
    for config in (b"{}", b"[]", b'{"rootfs": {"diff_ids": "x"}}', FULL):
        layout.blobs.mkdir(parents=True, exist_ok=True)
        layout.path(sha256(config)).write_bytes(config)
        content = {"schemaVersion": 2, "config": {"digest": sha256(config), "size": len(config)}, "layers": []}
        data = json.dumps(content).encode()
        layout.path(sha256(data)).write_bytes(data)
        with pytest.raises(EngineError, match="no configuration that names its 0 layers"):
            reader.registry("x", pushed(layout, sha256(data)), "cpu")


def test_archives_that_are_cut_or_no_images_are_refused(reader: ImageReader, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    whole = saved(FULL, *LAYERS)
    for length in range(0, len(whole.rstrip(b"\0")), 1000):
        path.write_bytes(whole[:length])
        with pytest.raises(EngineError):
            reader.archive("x", path)
    several = json.dumps([{"RepoTags": ["a:1"]}, {"RepoTags": None}]).encode()
    for data, words in {
        b"no archive": "cannot be read",
        archive(file("a", b"1")): "neither an index.json nor a manifest.json",
        archive(file("manifest.json", b"[1]")): "not an archive of an image",
        archive(file("manifest.json", several)): "holds 2 images: a:1, one without a tag",
        gzip.compress(whole)[:-300]: "cannot be read",
        archive(*(file(f"{number}.json", b"{" * 2**23) for number in range(9))): "small files have more than",
    }.items():
        path.write_bytes(data)
        with pytest.raises(TorchbakeError, match=words):
            reader.archive("x", path)


def test_an_archive_with_a_missing_or_damaged_file_is_refused(
    reader: ImageReader, layout: Layout, tmp_path: Path
) -> None:
    digest = put(layout, *LAYERS, config=CONFIG)
    write_index(layout, digest)
    files, path = _files_of(layout), tmp_path / "x.tar"
    for position, (info, data) in enumerate(files):
        if "blobs" not in info.name:
            continue
        others = [*files[:position], *files[position + 1 :]]
        for entries in (others, [*others, file(info.name, data + b" ")]):
            path.write_bytes(archive(*entries))
            with pytest.raises(EngineError):
                reader.archive("x", path)


def test_a_classic_store_names_an_image_by_its_config(reader: ImageReader, layout: Layout) -> None:
    digest = put(layout, *LAYERS, packing="tar", config=CONFIG)
    write_index(layout, digest)
    config = json.loads(layout.path(digest).read_text())["config"]["digest"]
    for containerd, image in ((False, config), (True, digest)):
        daemon = Daemon(containerd=containerd)
        daemon.archives[daemon.hold(image)] = archive(*_files_of(layout))
        inventory = reader.engine("x", daemon.engine, image)
        assert inventory.digest == image
        assert [layer.compressed for layer in inventory.layers] == [None] * 3


def test_an_uncompressed_layer_must_be_the_one_of_the_config(reader: ImageReader, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(saved_before_docker_25(FULL, LAYERS[0], LAYERS[2], LAYERS[1]))
    with pytest.raises(EngineError, match="Layer 2 of x is"):
        reader.archive("x", path)
