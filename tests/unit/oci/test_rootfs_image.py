"""OCI layouts: what they hold, and that the same root file system is the same image.

The compressing program is replaced by Python's own gzip: a unit test starts no process.
"""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from torchbake.oci import rootfs_image
from torchbake.oci.rootfs_image import layout_digest, write_layout


@pytest.fixture(autouse=True)
def _compress_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def compress(source: Path, target: Path) -> tuple[str, Path]:
        target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))
        return "gzip", target

    monkeypatch.setattr(rootfs_image, "_compress", compress)


def written(folder: Path, content: str = "a root file system", **changes: str) -> str:
    folder.parent.mkdir(parents=True, exist_ok=True)
    (folder.parent / "rootfs.tar").write_text(content)
    fields = {"created": "2025-01-01T00:00:00Z", "created_by": "a test"} | changes
    return write_layout(folder.parent / "rootfs.tar", folder, **fields)


def blob(folder: Path, described: dict[str, Any]) -> bytes:
    """A blob's content, once its name and size are seen to be true."""
    data: bytes = (folder / "blobs" / described["digest"].replace(":", "/")).read_bytes()
    assert described["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert described["size"] == len(data)
    return data


def test_the_layout_is_whole_from_the_index_to_the_layer(tmp_path: Path) -> None:
    digest = written(tmp_path / "layout")
    assert json.loads((tmp_path / "layout/oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads((tmp_path / "layout/index.json").read_text())["manifests"]
    assert described["digest"] == digest
    manifest = json.loads(blob(tmp_path / "layout", described))
    config = json.loads(blob(tmp_path / "layout", manifest["config"]))
    (layer,) = manifest["layers"]
    content = gzip.decompress(blob(tmp_path / "layout", layer))
    assert layer["mediaType"].endswith("tar+gzip")
    assert content == b"a root file system"
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert (config["os"], config["architecture"], config["created"]) == ("linux", "amd64", "2025-01-01T00:00:00Z")


def test_there_is_nothing_else_in_it(tmp_path: Path) -> None:
    written(tmp_path / "here/layout")
    assert len(list((tmp_path / "here/layout/blobs/sha256").iterdir())) == 3
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"layout", "rootfs.tar"}


def test_the_same_root_file_system_is_the_same_image(tmp_path: Path) -> None:
    assert written(tmp_path / "a/layout") == written(tmp_path / "b/layout")


@pytest.mark.parametrize("changes", [{"content": "another"}, {"created": "2026-01-01T00:00:00Z"}, {"created_by": "x"}])
def test_another_content_time_or_history_is_another_image(changes: dict[str, str], tmp_path: Path) -> None:
    assert written(tmp_path / "a/layout") != written(tmp_path / "b/layout", **changes)


def test_a_layouts_digest_is_read_back(tmp_path: Path) -> None:
    assert layout_digest(tmp_path / "layout") is None
    assert layout_digest(tmp_path / "layout") != written(tmp_path / "layout")
    assert layout_digest(tmp_path / "layout") == written(tmp_path / "layout")


@pytest.mark.parametrize("index", ["", "{}", '{"manifests": []}', "["])
def test_a_broken_layout_has_no_digest(index: str, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(index)
    assert layout_digest(tmp_path) is None


def test_a_failure_leaves_the_old_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = written(tmp_path / "here/layout")

    def fail(source: Path, target: Path) -> tuple[str, Path]:
        target.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rootfs_image, "_compress", fail)
    with pytest.raises(OSError, match="No space"):
        written(tmp_path / "here/layout", "another")
    assert layout_digest(tmp_path / "here/layout") == digest
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"layout", "rootfs.tar"}
