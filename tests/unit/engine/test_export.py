"""The compressed content of an image, read from the output of `docker save`."""

import contextlib
import io
import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zstandard
from docker import DockerClient

from tests.images.layers import LayersError, read_layers
from tests.unit.layouts import archive, blobs_of, file, put, saved, sha256
from torchbake.engine.client import Engine
from torchbake.engine.export import (
    Content,
    EngineSource,
    LayoutSource,
    check_tested,
    config_digest,
    sent_digest,
    source_of,
)
from torchbake.errors import BuildError, EngineError
from torchbake.oci.manifest import INDEX, Blob, Manifest
from torchbake.store.layout import Layout

NOISE = random.Random(0).randbytes(5 * 2**20)  # larger than the blobs that are always read
LAYERS = (archive(file("opt/small", b"x")), archive(file("opt/large", NOISE)))
CONFIG = json.dumps({"rootfs": {"diff_ids": [sha256(layer) for layer in LAYERS]}}).encode()


class Client:
    """The SDK's client of an engine that keeps one image; ``saves`` counts what it was asked to save."""

    def __init__(self, root: Path) -> None:
        self.store, self.saves = Layout(folder=root), 0
        self.digest = put(self.store, *LAYERS)
        self.archive = self._saved()
        self.api = SimpleNamespace(get_image=self._get_image)
        self.drivers = [["driver-type", "io.containerd.snapshotter.v1"]]
        self._root = root

    @property
    def engine(self) -> Engine:
        return _Saving(self)

    def version(self) -> dict[str, Any]:
        return {"Components": [{"Name": "Engine", "Version": "26.1.5"}]}

    def info(self) -> dict[str, Any]:
        return {"DriverStatus": self.drivers, "DockerRootDir": str(self._root)}

    def _get_image(self, name: str, chunk_size: int) -> Iterator[bytes]:
        self.saves += 1
        stream = io.BytesIO(self.archive)
        return iter(lambda: stream.read(min(chunk_size, 1000)), b"")

    def _saved(self) -> bytes:
        blobs = [file(f"blobs/sha256/{path.name}", path.read_bytes()) for path in sorted(self.store.blobs.iterdir())]
        return archive(file("oci-layout", b"{}"), *blobs)


class _Saving(Engine):
    """The real one, which makes no other client to save an image."""

    def __init__(self, client: Client) -> None:
        super().__init__(cast(DockerClient, client))

    @contextlib.contextmanager
    def save(self, digest: str) -> Iterator[Iterator[bytes]]:
        yield self.client.api.get_image(digest, chunk_size=2**20)

    def layers(self, digest: str) -> tuple[str, ...]:
        return tuple(map(sha256, LAYERS))


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "engine")


def test_an_image_is_taken_out_as_it_is(client: Client, tmp_path: Path) -> None:
    content = EngineSource(engine=client.engine).take_out(client.digest, tmp_path / "out", lambda digest: True)
    assert content.manifest.digest == client.digest
    matches = {content.path(one).name: content.path(one).read_bytes() for one in content.manifest.blobs}
    assert matches == {path.name: path.read_bytes() for path in blobs_of(client.store, client.digest)}
    assert client.saves == 1


def test_of_an_archive_a_layer_is_kept_if_it_is_wanted_or_small(client: Client, tmp_path: Path) -> None:
    content = EngineSource(engine=client.engine).take_out(client.digest, tmp_path / "out", lambda digest: False)
    assert [content.path(one).exists() for one in content.manifest.layers] == [True, False]


def test_what_the_engine_does_not_hand_out_is_an_error(client: Client, tmp_path: Path) -> None:
    client.archive = archive()
    with pytest.raises(EngineError, match="did not save"):
        EngineSource(engine=client.engine).take_out(client.digest, tmp_path / "out", lambda digest: True)


def test_an_index_is_no_image(client: Client, tmp_path: Path) -> None:
    index = json.dumps({"mediaType": INDEX}).encode()
    client.archive = archive(file(f"blobs/sha256/{sha256(index).removeprefix('sha256:')}", index))
    with pytest.raises(EngineError, match="is an index"):
        EngineSource(engine=client.engine).take_out(sha256(index), tmp_path / "out", lambda digest: True)


@pytest.fixture
def classic(client: Client) -> Client:
    """The same with the classic store, which knows the image by its config."""
    client.drivers, client.archive = [], saved(CONFIG, *LAYERS)
    client.digest = sha256(CONFIG)
    return client


def test_an_image_of_a_classic_store_is_compressed(classic: Client, tmp_path: Path) -> None:
    content = EngineSource(engine=classic.engine).take_out(classic.digest, tmp_path / "out", lambda digest: False)
    assert content.manifest.config.digest == classic.digest
    assert [blob.media_type.endswith("+zstd") for blob in content.manifest.layers] == [True, True]
    check_tested(content, classic.digest)


def test_a_classic_store_that_saves_another_image_is_an_error(classic: Client, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="in place of"):
        EngineSource(engine=classic.engine).take_out(sha256(b"asked for"), tmp_path / "out", lambda digest: True)


def test_an_image_is_sent_as_it_is_in_a_layout_else_saved_once(classic: Client, tmp_path: Path) -> None:
    layout = Layout(folder=tmp_path / "kept")
    source = LayoutSource(layout=layout, otherwise=EngineSource(engine=classic.engine))
    digests = {sent_digest(classic.engine, source, classic.digest) for _ in range(2)}
    content = source.find(classic.digest)
    assert content
    assert (digests, classic.saves) == ({content.manifest.digest}, 1)
    client = Client(tmp_path / "containerd")
    assert sent_digest(client.engine, source, client.digest) == client.digest
    assert client.saves == 0


def test_without_an_engine_images_come_from_a_layout_or_fail(tmp_path: Path) -> None:
    client = Client(tmp_path / "containerd")
    layout = Layout(folder=tmp_path / "kept")
    client.store.folder.rename(tmp_path / "export")
    layout.take(tmp_path / "export", client.digest)
    source, config = source_of(None, layout), layout.get(client.digest).config.digest
    assert config_digest(None, layout, client.digest) == source.config(config) == config
    assert sent_digest(None, source, config) == client.digest
    for absent in (source.config, partial(sent_digest, None, source)):
        with pytest.raises(BuildError, match="does not hold all of"):
            absent(sha256(b"x"))


def test_packed_layers_are_those_that_were_tested(classic: Client, tmp_path: Path) -> None:
    """The digest of a config says nothing of how its layers are packed, so they are unpacked."""
    layout = Layout(folder=tmp_path)
    for layers, packing, words in (
        (LAYERS, "zstd", ""), (LAYERS, "gzip", ""), (LAYERS, ("tar", "zstd"), ""), (LAYERS[::-1], "zstd", "are others"),
        (LAYERS[:1], "zstd", "are others"), ((LAYERS[0], archive(file("opt/other"))), "zstd", "are others"),
    ):  # fmt: skip
        manifest = layout.find(put(layout, *layers, packing=packing))
        assert manifest
        layout.path(sha256(CONFIG)).write_bytes(CONFIG)
        described = {**manifest.content, "config": Blob(digest=sha256(CONFIG), size=len(CONFIG)).descriptor}
        content = Content(manifest=Manifest(data=json.dumps(described).encode(), media_type=""), folder=layout.blobs)
        with pytest.raises(EngineError, match=words) if words else contextlib.nullcontext():
            check_tested(content, classic.digest)
        with pytest.raises(EngineError, match="was tested, and not"):
            check_tested(content, sha256(b"another"))
        for blob in content.manifest.layers:
            content.path(blob).write_bytes(zstandard.compress(b"damaged")[:-1])
        with pytest.raises(EngineError):
            check_tested(content, classic.digest)
        for path in layout.blobs.iterdir():
            path.unlink()


def test_checks_read_each_layer_once(client: Client, tmp_path: Path) -> None:
    diff_ids = [sha256(layer) for layer in LAYERS]
    for _ in range(2):  # the second time from the cache
        layers = read_layers(cast(DockerClient, client), client.digest, diff_ids, tmp_path / "layers")
        assert [[entry.path for entry in one.entries] for one in layers] == [["/opt/small"], ["/opt/large"]]
        hashes = [sha256(b"x"), sha256(NOISE)]
        assert [f"sha256:{entry.sha256}" for one in layers for entry in one.entries] == hashes
    assert client.saves == 1


def test_checks_say_which_layer_an_engine_does_not_give(client: Client, tmp_path: Path) -> None:
    client.archive = archive()
    with pytest.raises(LayersError, match=f"no layer {sha256(LAYERS[0])}"):
        read_layers(cast(DockerClient, client), client.digest, [sha256(LAYERS[0])], tmp_path / "layers")
