"""The files that a wheel becomes: in a layer's archive the same as in a folder of a build, and as uv installs them."""

import base64
import csv
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from layers.wheels import __main__ as wheels
from layers.wheels.contents import WheelError, contents_of
from layers.wheels.strip import strip
from layers.wheels.tree import EPOCH, normalise
from layers.wheels.trim import read_trim
from tests.libraries import library
from tests.wheels import write_wheel
from torchbake.build.wheel_packer import WheelPacker
from torchbake.core.paths import TOOLKIT
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.store.layers import LayerStore, PackedLayer

Tree = dict[str, tuple[int, float, bytes | None]]  # mode, time and content (None: a folder) by name
INFO, DATA = "triton-3.0.dist-info", "triton-3.0.data"
FILES = {
    "triton/__init__.py": b"x = 1\n",
    "triton/__init__.pyi": b"x: int\n",
    "triton/_C/libtriton.so": library(),
    "triton/_C/other.so": library(),
    "triton/backends/nvidia/bin/ptxas": b"\x7fELF",
    "triton/backends/nvidia/bin/nvdisasm": b"\x7fELF",
    f"{DATA}/scripts/plain": b"#!/bin/sh\n",
    f"{DATA}/scripts/python": b"#!python -s\nprint(1)\n",
    f"{DATA}/purelib/pure.py": b"",
    f"{DATA}/platlib/plat.so": b"",
    f"{DATA}/data/share/doc": b"text",
    f"{DATA}/headers/triton.h": b"#pragma once\n",
    f"{INFO}/entry_points.txt": (
        b"[console_scripts]\nMyTool = triton.run:Main.main [more]\n[gui_scripts]\ngui=triton:gui\n"
    ),
}
PROGRAMS = ("triton/backends/nvidia/bin/ptxas", "triton/backends/nvidia/bin/nvdisasm")
# Written by uv 0.13.8 for MyTool.
MY_TOOL = b"""\
#!/opt/venv/bin/python
# -*- coding: utf-8 -*-
import sys
from triton.run import Main
if __name__ == "__main__":
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit(Main.main())
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with files of all kinds."""
    write_wheel(tmp_path / "wheels", "triton", "3.0", FILES, executable=PROGRAMS)
    (path,) = (tmp_path / "wheels").iterdir()
    return path


def in_archives(wheel: Path, folder: Path, *, trim: bool) -> Tree:
    """The files of a wheel in the archives that this machine packs: below `layers/triton` and `headers`."""
    digest = f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"
    packer = WheelPacker(
        store=LayerStore(folder=folder / "store"), pip=PipConfig(find_links=(str(wheel.parent),), no_index=True),
        python="3.11", root="/root", trim=trim,
    )  # fmt: skip
    layer = packer.pack(Pin(name="triton", version="3.0", hashes=(digest,)))
    assert isinstance(layer, PackedLayer)
    headers = {layer.headers.digest: ("headers", "headers")} if layer.headers else {}
    matches: Tree = {}
    for digest, (before, after) in {layer.layer.blob.digest: ("root", "layers/triton"), **headers}.items():
        data = zstandard.ZstdDecompressor().decompressobj().decompress(packer.store.path(digest).read_bytes())
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for info in archive:
                file = archive.extractfile(info)
                content = file.read() if file else None
                matches[after + info.name.removeprefix(before)] = (info.mode, info.mtime, content)
    return matches


def in_folders(wheel: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *, trim: bool) -> Tree:
    """The files of a wheel in the folders that a build lays out."""
    layers, headers = folder / "layers", folder / "headers"
    for name, where in (("LAYERS", layers), ("HEADERS", headers)):
        where.mkdir()
        monkeypatch.setattr(wheels, name, where)
    wheels._lay_out(read_trim(TOOLKIT / "layers/trim.toml" if trim else None), wheel)
    for where in (layers / "triton", headers):
        normalise(where)
    paths = [path for where in (layers / "triton", headers) for path in (where, *where.rglob("*"))]
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mode & 0o7777,
            path.stat().st_mtime,
            path.read_bytes() if path.is_file() else None,
        )
        for path in paths
        if path != headers or [*headers.iterdir()]
    }


@pytest.mark.usefixtures("own_processes")
@pytest.mark.parametrize("trim", [True, False])
def test_archives_and_folders_have_the_same_files(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, trim: bool
) -> None:
    archives = in_archives(wheel, tmp_path, trim=trim)
    folders = in_folders(wheel, tmp_path, monkeypatch, trim=trim)
    assert sorted(archives) == sorted(folders)
    assert archives == folders
    assert {time for _, time, _ in archives.values()} == {EPOCH}
    assert ("headers/triton/backends/nvidia/bin/nvdisasm" in archives) == trim
    assert ("layers/triton/triton/__init__.pyi" in archives) != trim


def laid_out(path: Path, *, trim: bool = True) -> dict[str, tuple[bytes, bool]]:
    """Return the content of each file of a layer, and whether it is executable."""
    with zipfile.ZipFile(path) as wheel:
        layer = contents_of(wheel, read_trim(TOOLKIT / "layers/trim.toml" if trim else None)).layer
        read = {name: file.content for name, file in layer.items()}
        return {
            name: (content if isinstance(content, bytes) else wheel.read(content), layer[name].executable)
            for name, content in read.items()
        }


def test_files_are_where_uv_installs_them(wheel: Path) -> None:
    files = laid_out(wheel)
    assert files["bin/MyTool"] == (MY_TOOL, True)
    assert b"from triton import gui\n" in files["bin/gui"][0]
    assert files["bin/plain"] == (b"#!/bin/sh\n", True)
    assert files["bin/python"] == (b"#!/opt/venv/bin/python\nprint(1)\n", True)
    assert {"pure.py", "plat.so", "share/doc", "include/triton/triton.h"} <= files.keys()
    assert files["triton/backends/nvidia/bin/ptxas"][1]
    assert not files["triton/__init__.py"][1]
    assert files[f"{INFO}/INSTALLER"][0] == b"uv"
    assert not [name for name in files if ".data/" in name]


def test_only_the_library_that_a_rule_strips_is_altered(wheel: Path) -> None:
    files = laid_out(wheel)
    assert files["triton/_C/other.so"][0] == library()
    assert files["triton/_C/libtriton.so"][0] == strip(library()) != library()


@pytest.mark.parametrize("trim", [True, False])
def test_the_record_names_each_file_with_its_hash_and_size(wheel: Path, *, trim: bool) -> None:
    files = laid_out(wheel, trim=trim)
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(files[f"{INFO}/RECORD"][0].decode()))}
    assert rows.keys() == files.keys()
    assert rows.pop(f"{INFO}/RECORD") == ["", ""]
    for name, (digest, size) in rows.items():
        data = files[name][0]
        hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert (digest, size) == (f"sha256={hashed}", str(len(data))), name


def with_points(text: bytes) -> dict[str, bytes]:
    return {f"{INFO}/entry_points.txt": text}


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"../outside": b""}, "../outside"),
        ({"/root/outside": b""}, "/root/outside"),
        ({"triton/unnamed.py": b""}, "triton/unnamed.py"),
        ({f"{DATA}/stdlib/os.py": b""}, f"{DATA}/stdlib/os.py"),
        ({"other-1.0.dist-info/RECORD": b""}, "2 files NAME.dist-info/RECORD"),
        (with_points(b"[console_scripts]\nx = triton\n"), "x = triton"),
        (with_points(b"[console_scripts]\n../x = triton:main\n"), "../x"),
        (with_points(b"no section\n"), f"{INFO}/entry_points.txt"),
    ],
)
def test_a_wheel_that_cannot_be_laid_out_names_its_file(tmp_path: Path, files: dict[str, bytes], name: str) -> None:
    write_wheel(tmp_path, "triton", "3.0", files, unnamed=["triton/unnamed.py"])
    (path,) = tmp_path.iterdir()
    with pytest.raises(WheelError) as caught:
        laid_out(path)
    assert name in str(caught.value)


def test_a_build_fails_with_the_wheel_and_the_invalid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path / "wheels", "triton", "3.0", {"triton/a.py": b""}, unnamed=["triton/a.py"])
    monkeypatch.setattr(wheels, "download", lambda *_: [*(tmp_path / "wheels").iterdir()])
    for name in ("LAYERS", "HEADERS"):
        monkeypatch.setattr(wheels, name, tmp_path / name)
    with pytest.raises(SystemExit) as end:
        wheels.main(["layers", str(tmp_path / "lock"), "/pytorch"])
    assert "triton-3.0-py3-none-" in str(end.value)
    assert "triton/a.py" in str(end.value)


def test_a_wheel_that_is_compressed_otherwise_is_refused(wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a", zipfile.ZIP_LZMA) as archive:
        archive.writestr("triton/more.py", b"")
    with pytest.raises(WheelError, match=r"triton/more\.py is encrypted, or compressed"):
        laid_out(wheel)
