"""A layer's archive: what its compression finds again, what a decoder needs for it, and who may write it."""

import hashlib
import io
import random
import tarfile
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from torchbake.errors import BuildError
from torchbake.oci import layer_archive
from torchbake.oci.layer_archive import Member, unpack, write_layer
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import sha256

_MANY = 5_000_000  # bytes; zstd's own level looks back over 2 MB


@cache
def noise(seed: int) -> bytes:
    return random.Random(seed).randbytes(_MANY)


def members(*contents: bytes) -> Iterator[Member]:
    for number, data in enumerate(contents):
        info = tarfile.TarInfo(f"lib/{number}.so")
        info.size = len(data)
        yield info, lambda data=data: io.BytesIO(data)  # type: ignore[misc]


def frames_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The window of each frame, and what it holds."""
    while data:
        window, decoder = zstandard.get_frame_parameters(data).window_size, zstandard.ZstdDecompressor().decompressobj()
        yield window, decoder.decompress(data)
        data = decoder.unused_data


def test_what_comes_again_far_behind_is_stored_once(tmp_path: Path) -> None:
    layer = write_layer(tmp_path / "layer", members(noise(1), noise(2), noise(1)), threads=2)
    assert layer.blob.size < 2.1 * _MANY


def test_a_decoder_needs_no_more_memory_than_those_in_use_take(tmp_path: Path) -> None:
    """`zstd -d` refuses a window of more than 128 MB."""
    write_layer(tmp_path / "layer", members(noise(1)), threads=2)
    window = zstandard.get_frame_parameters((tmp_path / "layer").read_bytes()).window_size
    assert window <= 2**27


def test_no_frame_is_longer_than_its_window(tmp_path: Path) -> None:
    """Containerd's decoder moves longer frames in memory repeatedly: docs/internals/performance.md."""
    layer = write_layer(tmp_path / "layer", members(bytes(70_000_000), noise(1)), threads=2)
    assert_frames_are_short((tmp_path / "layer").read_bytes(), layer, 2)
    unpack(tmp_path / "layer", tmp_path)
    assert (tmp_path / "lib/1.so").read_bytes() == noise(1)


@pytest.mark.parametrize("threads", [0, 1])
def test_each_full_window_ends_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(layer_archive, "_WINDOW", 22)
    monkeypatch.setattr(layer_archive, "_FRAME", 2**22)
    layer = write_layer(tmp_path / "layer", members(bytes(3_000_000), noise(1), bytes(3_000_000)), threads=threads)
    assert_frames_are_short((tmp_path / "layer").read_bytes(), layer, 3)


def assert_frames_are_short(data: bytes, layer: Layer, count: int) -> None:
    frames = [*frames_of(data)]
    assert [len(content) <= window for window, content in frames] == [True] * count
    assert layer.diff_id == sha256(b"".join(content for _, content in frames))


def test_any_number_of_threads_makes_the_same_archive(tmp_path: Path) -> None:
    contents = (noise(1), bytes(_MANY), noise(2), noise(1), noise(3))
    one = write_layer(tmp_path / "one", members(*contents), threads=1)
    for threads in (2, 3, -1):
        assert write_layer(tmp_path / "more", members(*contents), threads=threads) == one, threads


@given(
    names=st.lists(st.text("aé/.", min_size=1, max_size=260), max_size=5),
    contents=st.lists(st.binary(max_size=1500), min_size=5, max_size=5),
    link=st.text("bø/", min_size=1, max_size=160),
)
def test_the_archive_is_the_one_that_tarfile_writes(names: list[str], contents: list[bytes], link: str) -> None:
    symlink = tarfile.TarInfo("link")
    symlink.type, symlink.linkname = tarfile.SYMTYPE, link
    files = [(tarfile.TarInfo(name), data) for name, data in zip(names, contents, strict=False)]
    theirs = io.BytesIO()
    with tarfile.open(fileobj=theirs, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for info, data in files:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        tar.addfile(symlink)
    entries: list[Member] = [(info, lambda data=data: io.BytesIO(data)) for info, data in files]  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        ours = write_layer(Path(folder, "layer"), [*entries, (symlink, None)], threads=1)
    assert ours.diff_id == f"sha256:{hashlib.sha256(theirs.getvalue()).hexdigest()}"


@pytest.mark.parametrize("more", [-1, 1])
def test_a_file_of_another_size_than_its_entry_says_is_no_layer(tmp_path: Path, more: int) -> None:
    ((info, opened),) = members(b"a file")
    info.size += more
    with pytest.raises(OSError, match=f"lib/0.so has 6 bytes in place of {6 + more}"):
        write_layer(tmp_path / "layer", [(info, opened)], threads=1)


def test_what_was_written_is_unpacked_as_it_was(tmp_path: Path) -> None:
    contents = (noise(1), b"", noise(1))
    write_layer(tmp_path / "layer", members(*contents), threads=2)
    unpack(tmp_path / "layer", tmp_path / "files")
    assert [(tmp_path / f"files/lib/{number}.so").read_bytes() for number in range(3)] == [*contents]


@pytest.mark.parametrize("at", [0, 4_000_000])
def test_damage_is_told_by_the_name_of_the_file(tmp_path: Path, at: int) -> None:
    write_layer(tmp_path / "layer", members(noise(1), noise(2)), threads=2)
    data = bytearray((tmp_path / "layer").read_bytes())
    data[at : at + 4] = b"\xff" * 4 if at == 0 else b""
    (tmp_path / "layer").write_bytes(data)
    with pytest.raises(BuildError, match=r"layer is damaged"):
        unpack(tmp_path / "layer", tmp_path / "files")


def entry(name: str, kind: bytes = tarfile.REGTYPE, *, data: bytes = b"", mode: int = 0o644, link: str = "") -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.mtime, info.linkname = kind, mode, len(data), 315532800, link
    return info, (lambda: io.BytesIO(data)) if kind == tarfile.REGTYPE else None


def test_files_and_folders_get_their_modes_and_times(tmp_path: Path) -> None:
    entries = [entry("d", tarfile.DIRTYPE, mode=0o555), entry("d/program", data=b"#!", mode=0o755), entry("e/file")]
    write_layer(tmp_path / "layer", entries, threads=1)
    unpack(tmp_path / "layer", tmp_path / "files")
    paths = {path.relative_to(tmp_path / "files").as_posix(): path for path in (tmp_path / "files").rglob("*")}
    status = {name: (path.stat().st_mode & 0o7777, path.stat().st_mtime) for name, path in paths.items() if name != "e"}
    assert status == {"d": (0o555, 315532800), "d/program": (0o755, 315532800), "e/file": (0o644, 315532800)}


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../outside/file", data=b"no")],
        [entry("d/../../outside/file", data=b"no")],
        [entry("/{outside}/file", data=b"no")],
        [entry("../outside", tarfile.DIRTYPE, mode=0o777)],
        [entry("link", tarfile.SYMTYPE, link="../outside"), entry("link/file", data=b"no")],
        [entry("link", tarfile.LNKTYPE, link="../outside/there"), entry("link", data=b"no")],
        [entry("pipe", tarfile.FIFOTYPE)],
    ],
    ids=["parent", "parent within", "absolute", "folder", "symlink", "hard link", "pipe"],
)
def test_nothing_is_written_outside_the_folder(tmp_path: Path, entries: list[Member]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(0o700)
    (outside / "there").write_bytes(b"before")
    for info, _ in entries:
        info.name = info.name.replace("{outside}", str(outside).removeprefix("/"))
    write_layer(tmp_path / "layer", entries, threads=1)
    with pytest.raises(BuildError, match="layer is damaged"):
        unpack(tmp_path / "layer", tmp_path / "files")
    assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [("there", b"before")]
    assert outside.stat().st_mode & 0o7777 == 0o700
