"""The files of a layer, written beside its archive: what unpacking that would give, or nothing."""

import io
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchbake.oci.layer_archive import unpack, write_layer
from torchbake.oci.layer_tree import Member, tree_of

_TIME = 315532800
_BIG = bytes(range(256)) * 10_000


def entry(name: str, kind: bytes, mode: int = 0o755, data: bytes | None = None, link: str = "") -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime, info.linkname, info.size = kind, mode, _TIME, link, len(data or b"")
    return info, None if data is None else lambda: io.BytesIO(data)


def members() -> Iterator[Member]:
    yield entry("pytorch", tarfile.DIRTYPE)
    yield entry("pytorch/bin", tarfile.DIRTYPE)
    yield entry("pytorch/bin/torchrun", tarfile.REGTYPE, 0o755, b"#!python\n")
    yield entry("pytorch/libtorch.so", tarfile.REGTYPE, 0o644, _BIG)
    yield entry("pytorch/libtorch.so.2", tarfile.SYMTYPE, link="libtorch.so")
    yield entry("pytorch/py.typed", tarfile.REGTYPE, 0o644, b"")


def files(tree: Path) -> dict[str, tuple[str, float, bytes | str]]:
    """What is below a folder: mode, time and content of each."""
    found = {}
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[str(path.relative_to(tree))] = (stat.filemode(status.st_mode), status.st_mtime, content)
    return found


def test_it_is_what_unpacking_the_archive_gives(tmp_path: Path) -> None:
    (tmp_path / "trees").mkdir()
    layer = write_layer(tmp_path / "layer", members(), threads=2, trees=tmp_path / "trees")
    write_layer(tmp_path / "no link", (each for each in members() if not each[0].issym()), threads=2)
    unpack(tmp_path / "no link", tmp_path / "unpacked")
    tree = tree_of(tmp_path / "trees", layer.diff_id)
    found, link = files(tree), "pytorch/libtorch.so.2"
    assert found.pop(link) == ("lrwxrwxrwx", _TIME, "libtorch.so")
    assert found == files(tmp_path / "unpacked")
    assert found["pytorch/libtorch.so"] == ("-rw-r--r--", _TIME, _BIG)
    assert [*(tmp_path / "trees").iterdir()] == [tree]


def test_the_archive_is_the_same_with_and_without(tmp_path: Path) -> None:
    without = write_layer(tmp_path / "layer", members(), threads=2)
    assert write_layer(tmp_path / "layer", members(), threads=2, trees=tmp_path) == without


@pytest.mark.parametrize("odd", ["no such folder", "a name that is taken", "an entry in no folder"])
def test_what_cannot_be_written_keeps_no_archive_from_being(tmp_path: Path, odd: str) -> None:
    trees = tmp_path / "trees"
    if odd != "no such folder":
        trees.mkdir()
    more = {
        "a name that is taken": entry("pytorch/py.typed", tarfile.REGTYPE, 0o644, b"again"),
        "an entry in no folder": entry("elsewhere/file", tarfile.REGTYPE, 0o644, b"more"),
    }
    entries = [*members(), *([more[odd]] if odd in more else [])]
    layer = write_layer(tmp_path / "layer", entries, threads=2, trees=trees)
    assert layer == write_layer(tmp_path / "layer", entries, threads=2)
    assert not trees.exists() or [*trees.iterdir()] == []


def test_a_full_disk_ends_the_tree_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trees").mkdir()
    without = write_layer(tmp_path / "layer", members(), threads=2)
    opened = Path.open

    def full(path: Path, mode: str = "r", *rest: object) -> object:
        return opened(Path("/dev/full"), "wb", buffering=0) if mode == "xb" else opened(path, mode)

    monkeypatch.setattr(Path, "open", full)
    assert write_layer(tmp_path / "layer", members(), threads=2, trees=tmp_path / "trees") == without
    assert [*(tmp_path / "trees").iterdir()] == []


def test_a_layer_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    trees = tmp_path / "trees"
    trees.mkdir()
    layer = write_layer(tmp_path / "layer", members(), threads=2, trees=trees)
    before = tree_of(trees, layer.diff_id).stat().st_ino
    write_layer(tmp_path / "layer", members(), threads=2, trees=trees)
    assert tree_of(trees, layer.diff_id).stat().st_ino == before
    assert len([*trees.iterdir()]) == 1
