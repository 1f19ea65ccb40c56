"""An image that `docker save` wrote, in either form, is the same image in a layout, its layers compressed or not."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.unit.layouts import archive, file, put, saved, saved_before_docker_25, sha256
from torchbake.errors import BuildError
from torchbake.oci.layer_archive import compress_layer
from torchbake.oci.layer_order import Layer
from torchbake.oci.layer_stream import unpacked_digest
from torchbake.oci.manifest import Manifest
from torchbake.store import docker_archive
from torchbake.store.docker_archive import SavedArchive, known_layers
from torchbake.store.layout import Layout

Form = Callable[..., bytes]
BASE, UPPER = archive(file("base", b"b" * 5 * 2**20)), archive(file("upper", b"u"))
EMPTY = archive()
LAYERS = (BASE, EMPTY, UPPER, EMPTY)
DIFF_IDS = [sha256(layer) for layer in LAYERS]
CONFIG = json.dumps({"rootfs": {"diff_ids": DIFF_IDS}, "history": []}).encode()

pytestmark = pytest.mark.parametrize("form", [saved, saved_before_docker_25])


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(folder=tmp_path / "layout")


def read(layout: Layout, data: bytes, *layouts: Layout, threads: int | None = 2) -> Manifest:
    source = SavedArchive(file=io.BytesIO(data), diff_ids=DIFF_IDS, layers=known_layers(layouts), threads=threads)
    return source.write(layout)


def test_a_saved_image_is_one_of_a_layout(form: Form, layout: Layout) -> None:
    manifest = read(layout, form(CONFIG, *LAYERS))
    assert layout.find(manifest.digest) == manifest
    assert layout.path(manifest.config.digest).read_bytes() == CONFIG
    assert [unpacked_digest(layout.path(blob.digest)) for blob in manifest.layers] == DIFF_IDS
    assert {blob.media_type.rpartition("+")[2] for blob in manifest.layers} == {"zstd"}
    assert len(list(layout.blobs.iterdir())) == len(("manifest", "config", "BASE", "EMPTY", "UPPER"))
    assert [path.name for path in layout.folder.iterdir()] == ["blobs"]  # nothing of the work is left


def test_any_number_of_threads_gives_the_same_image(form: Form, layout: Layout, tmp_path: Path) -> None:
    data = form(CONFIG, *LAYERS)
    digests = {read(Layout(folder=tmp_path / str(many)), data, threads=many).digest for many in (-1, 1, 2)}
    assert digests == {read(layout, data).digest}


def test_layers_stay_uncompressed_if_no_user_needs_compression(form: Form, layout: Layout) -> None:
    manifest = read(layout, form(CONFIG, *LAYERS), threads=None)
    assert layout.find(manifest.digest) == manifest
    assert [blob.digest for blob in manifest.layers] == DIFF_IDS
    assert [layout.path(diff_id).read_bytes() for diff_id in DIFF_IDS] == [*LAYERS]


def test_a_layer_that_is_packed_already_is_not_packed_again(form: Form, layout: Layout, tmp_path: Path) -> None:
    base = Layout(folder=tmp_path / "base")
    (tmp_path / "export").mkdir()
    digest = put(Layout(folder=tmp_path / "export"), BASE, packing="gzip")
    base.take(tmp_path / "export", digest)
    actual = base.find(digest)
    assert actual
    manifest = read(layout, form(CONFIG, *LAYERS), base)
    assert manifest.layers[0] == actual.layers[0]
    assert layout.path(actual.layers[0].digest).samefile(base.path(actual.layers[0].digest))
    assert layout.find(manifest.digest)


def test_a_packed_layer_with_a_known_name_is_not_compressed(
    form: Form, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_item, compressed = Layout(folder=tmp_path / "kept"), []
    stored_item.take(tmp_path / "export", read(Layout(folder=tmp_path / "export"), form(CONFIG, *LAYERS)).digest)

    def counted(target: Path, file: IO[bytes], *, threads: int) -> Layer:
        compressed.append(target)
        return compress_layer(target, file, threads=threads)

    monkeypatch.setattr(docker_archive, "compress_layer", counted)
    assert layout.find(read(layout, form(CONFIG, *LAYERS), stored_item).digest)
    assert len(compressed) == {saved: 0, saved_before_docker_25: len({BASE, EMPTY, UPPER})}[form]


def test_what_is_cut_off_or_another_image_is_an_error(form: Form, layout: Layout) -> None:
    whole, other = form(CONFIG, *LAYERS), archive(file("other"))
    for data in (
        b"", whole[: len(whole) // 2], whole[:-20480], archive(file("manifest.json", b"[")),
        archive(file("manifest.json", b"[{}]")), archive(file("manifest.json", b"[1]")),
        form(CONFIG, *LAYERS[:3]), form(CONFIG, *LAYERS[::-1]), form(CONFIG, other, *LAYERS[1:]),
    ):  # fmt: skip
        with pytest.raises(BuildError, match="docker save"):
            read(layout, data)
        assert not [path for path in layout.folder.iterdir() if path.name != "blobs"]
