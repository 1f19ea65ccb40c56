"""The cache of the contents of layers."""

import io
import time
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
import zstandard

from tests.unit.contents.test_scan import EVERYTHING
from tests.unit.layouts import archive, file, sha256
from torchbake.contents import layer_cache
from torchbake.contents.layer_cache import LayerCache
from torchbake.contents.scan import LayerScanner
from torchbake.contents.stored_image import StoredImage, StoredLayer
from torchbake.errors import EngineError

PACKAGES = archive(
    file("a-1.dist-info/METADATA", b"Name: a\nVersion: 1"), file("a-1.dist-info/RECORD", b"a.py,,\n"),
    file("b.so", b"\x7fELF"),
)  # fmt: skip


def gpu_code(content: IO[bytes], size: int) -> dict[str, int]:
    return {"sm_90": size}


@pytest.fixture
def cache(tmp_path: Path) -> LayerCache:
    return LayerCache(folder=tmp_path / "cache", scanner=LayerScanner())


def test_a_layer_comes_back_as_it_was_read(cache: LayerCache) -> None:
    with_code = replace(cache, scanner=LayerScanner(gpu_code=gpu_code))
    for data in (EVERYTHING, PACKAGES, archive()):
        assert with_code.find(sha256(data)) is None
        contents = with_code.scan(io.BytesIO(data), sha256(data))
        assert with_code.find(sha256(data)) == contents


def test_a_damaged_layer_is_not_remembered(cache: LayerCache) -> None:
    with pytest.raises(EngineError):
        cache.scan(io.BytesIO(EVERYTHING), sha256(PACKAGES))
    assert cache.find(sha256(EVERYTHING)) is cache.find(sha256(PACKAGES)) is None


def test_a_damaged_or_foreign_file_counts_as_none(cache: LayerCache) -> None:
    cache.scan(io.BytesIO(EVERYTHING))
    assert cache.folder
    (path,) = cache.folder.iterdir()
    cache.scan(io.BytesIO(PACKAGES))
    (other,) = {*cache.folder.iterdir()} - {path}
    whole = path.read_bytes()
    for data in (b"", whole[:-9], whole[:40], other.read_bytes(), zstandard.compress(b"[1]")):
        path.write_bytes(data)
        assert cache.find(sha256(EVERYTHING)) is None
    path.write_bytes(whole)
    assert cache.find(sha256(EVERYTHING))


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (None, tmp_path / "file"):
        cache = LayerCache(folder=folder, scanner=LayerScanner())
        assert cache.scan(io.BytesIO(PACKAGES)).digest == sha256(PACKAGES)
        assert cache.find(sha256(PACKAGES)) is None


def test_the_layers_used_last_stay_within_the_limit(cache: LayerCache, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [archive(file(f"{number}", str(number).encode() * 300)) for number in range(4)]
    for data in layers[:3]:
        cache.scan(io.BytesIO(data))
        time.sleep(0.01)
    assert cache.folder
    size = max(path.stat().st_size for path in cache.folder.iterdir())
    assert cache.find(sha256(layers[0]))
    monkeypatch.setattr(layer_cache, "_LIMIT", 2 * size + 10)
    cache.scan(io.BytesIO(layers[3]))
    assert [number for number, data in enumerate(layers) if cache.find(sha256(data))] == [0, 3]


def test_an_image_comes_back_as_it_was_kept(cache: LayerCache) -> None:
    image = StoredImage(
        digest="sha256:1", config={"os": "linux"}, layers=(StoredLayer(digest="sha256:2", compressed=None),)
    )
    cache.keep_image("sha256:1-linux/amd64", image)
    assert cache.find_image("sha256:1-linux/amd64") == image
    assert cache.find_image("sha256:1-linux/arm64") is None
