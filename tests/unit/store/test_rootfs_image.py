"""Images of root file systems: their content, and that the same files are the same image."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import IO, Any

import pytest
import zstandard

from torchbake.errors import BaseError
from torchbake.store import rootfs_image
from torchbake.store.layout import Layout
from torchbake.store.rootfs_image import write_rootfs_image

LINKS = {"etc/name": tarfile.SYMTYPE, "etc/same": tarfile.LNKTYPE}


def archive(content: str, format: int = tarfile.GNU_FORMAT) -> bytes:
    """A folder, a file of another user, and links to it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format) as tar:
        folder = tarfile.TarInfo("./etc")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        file = tarfile.TarInfo("./etc/ünder")
        file.size, file.mode, file.uid, file.mtime = len(content), 0o4755, 1001, 1_735_689_600
        tar.addfile(file, io.BytesIO(content.encode()))
        for name, kind in LINKS.items():
            link = tarfile.TarInfo(f"./{name}")
            link.type, link.linkname = kind, "./etc/ünder"
            tar.addfile(link)
    return packed.getvalue()


def write(folder: Path, content: str | bytes = "a root file system", **changes: str) -> str:
    """``content`` is the file's, or an archive as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    (folder.parent / "rootfs.tar").write_bytes(content if isinstance(content, bytes) else archive(content))
    fields = {"created": "2025-01-01T00:00:00Z", "created_by": "a test"} | changes
    return write_rootfs_image(folder.parent / "rootfs.tar", Layout(folder=folder), **fields)


def unpacked(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()


def blob(folder: Path, described: dict[str, Any]) -> bytes:
    """A blob's content, once its name and size are seen to be true."""
    data: bytes = (folder / "blobs" / described["digest"].replace(":", "/")).read_bytes()
    assert described["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert described["size"] == len(data)
    return data


def test_the_layout_is_whole_from_the_index_to_the_layer(tmp_path: Path) -> None:
    digest = write(tmp_path / "layout")
    assert json.loads((tmp_path / "layout/oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads((tmp_path / "layout/index.json").read_text())["manifests"]
    assert described["digest"] == digest
    manifest = json.loads(blob(tmp_path / "layout", described))
    config = json.loads(blob(tmp_path / "layout", manifest["config"]))
    (layer,) = manifest["layers"]
    content = unpacked(blob(tmp_path / "layout", layer))
    assert layer["mediaType"].endswith("tar+zstd")
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert (config["os"], config["architecture"], config["created"]) == ("linux", "amd64", "2025-01-01T00:00:00Z")


def test_the_layer_has_each_file_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "layout")
    manifest = json.loads(
        blob(tmp_path / "layout", json.loads((tmp_path / "layout/index.json").read_text())["manifests"][0])
    )
    with tarfile.open(fileobj=io.BytesIO(unpacked(blob(tmp_path / "layout", manifest["layers"][0])))) as tar:
        folder, file, *links = tar.getmembers()
        assert (folder.name, folder.isdir(), folder.mode) == ("./etc", True, 0o755)
        assert (file.name, file.mode, file.uid, file.mtime) == ("./etc/ünder", 0o4755, 1001, 1_735_689_600)
        content: IO[bytes] | None = tar.extractfile(file)
        assert content
        assert content.read() == b"a root file system"
        assert {link.name: link.type for link in links} == {f"./{name}": kind for name, kind in LINKS.items()}
        assert {link.linkname for link in links} == {"./etc/ünder"}


def test_there_is_nothing_else_in_it(tmp_path: Path) -> None:
    write(tmp_path / "here/layout")
    assert len(list((tmp_path / "here/layout/blobs/sha256").iterdir())) == 3
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"layout", "rootfs.tar"}


def test_the_same_root_file_system_is_the_same_image(tmp_path: Path) -> None:
    assert write(tmp_path / "a/layout") == write(tmp_path / "b/layout")


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
def test_it_is_the_same_image_whatever_tar_wrote_the_archive(format: int, tmp_path: Path) -> None:
    other = archive("a root file system", format)
    assert other != archive("a root file system")
    assert write(tmp_path / "a/layout", other) == write(tmp_path / "b/layout")


def test_an_archive_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BaseError, match=r"rootfs\.tar: not a root file system"):
        write(tmp_path / "here/layout", archive("long" * 1000)[:2000])
    assert Layout(folder=tmp_path / "here/layout").entries() == []


@pytest.mark.parametrize("changes", [{"content": "another"}, {"created": "2026-01-01T00:00:00Z"}, {"created_by": "x"}])
def test_another_content_time_or_history_is_another_image(changes: dict[str, str], tmp_path: Path) -> None:
    assert write(tmp_path / "a/layout") != write(tmp_path / "b/layout", **changes)


def test_a_failure_leaves_the_old_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "here/layout"
    digest = write(folder)
    before = files(folder)

    def fail(target: Path, members: object, *, threads: int) -> None:
        target.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rootfs_image, "write_layer", fail)
    with pytest.raises(OSError, match="No space"):
        write(folder, "another")
    assert Layout(folder=folder).find(digest)
    assert files(folder) == before


def test_an_image_of_other_or_missing_files_is_replaced(tmp_path: Path) -> None:
    layout = Layout(folder=tmp_path / "layout")
    first, second = write(layout.folder), write(layout.folder, "other files")
    assert [entry.key for entry in layout.entries()] == [second] != [first]
    complete = files(layout.folder)
    for name in complete:
        (layout.folder / name).unlink()
        assert write(layout.folder, "other files") == second
        assert files(layout.folder) == complete
    assert layout.find(second)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
