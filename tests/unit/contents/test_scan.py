"""One layer's files, whiteouts and packages."""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from typing import IO

import pytest

from tests.unit.layouts import PACKERS, archive, file, sha256
from torchbake.contents.scan import LayerContents, LayerScanner, ScannedFile
from torchbake.errors import EngineError
from torchbake.oci.layer_tar import LayerLimits

EVERYTHING = archive(
    file("./", type=tarfile.DIRTYPE),
    file("./usr/", type=tarfile.DIRTYPE, mode=0o755, uid=3, gid=4),
    file("./usr/x", b"content", mode=0o4755, uid=1001, gid=7),
    file("usr/y", type=tarfile.LNKTYPE, linkname="./usr/x", mode=0o4755),
    file("lib", type=tarfile.SYMTYPE, linkname="usr/lib"),
    file("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666),
    file("pipe", type=tarfile.FIFOTYPE),
    file("usr/.wh.gone"),
    file("opt/.wh..wh..opq"),
)
HASH = hashlib.sha256(b"content").hexdigest()


def scan(data: bytes, **options: object) -> LayerContents:
    return LayerScanner(**options).scan(io.BytesIO(data))  # type: ignore[arg-type]


def test_each_kind_of_entry_is_what_the_layer_says() -> None:
    contents = scan(EVERYTHING)
    assert contents.whiteouts == ("opt/.wh..wh..opq", "usr/.wh.gone")
    assert contents.files == (
        ScannedFile("lib", "symlink", 0, 0o777, 0, 0, "usr/lib", {}),
        ScannedFile("null", "device", 0, 0o666, 0, 0, "1:3", {}),
        ScannedFile("pipe", "device", 0, 0o644, 0, 0, "0:0", {}),
        ScannedFile("usr", "folder", 0, 0o755, 3, 4, "", {}),
        ScannedFile("usr/x", "file", 7, 0o4755, 1001, 7, HASH, {}),
        ScannedFile("usr/y", "hardlink", 0, 0o4755, 0, 0, "usr/x", {}),
    )


def test_any_compression_gives_the_same_files() -> None:
    plain = scan(EVERYTHING)
    for name, pack in PACKERS.items():
        packed = pack(EVERYTHING)
        contents = scan(packed)
        assert (contents.files, contents.whiteouts) == (plain.files, plain.whiteouts)
        assert (contents.digest, contents.stored) == (sha256(packed), len(packed))
        assert contents.compressed == (name != "tar")


def test_another_digest_or_a_cut_layer_is_an_error_that_names_it() -> None:
    digest = f"sha256:{'1' * 64}"
    for pack in PACKERS.values():
        packed = pack(EVERYTHING)
        with pytest.raises(EngineError, match=digest):
            LayerScanner().scan(io.BytesIO(packed), digest)
        for length in (0, 3, len(packed) // 2):
            with pytest.raises(EngineError, match="111111111111"):
                LayerScanner().scan(io.BytesIO(packed[:length]), digest)
    with pytest.raises(EngineError, match="cannot be read"):
        scan(b"no archive" * 100)


def test_no_name_leads_out_of_the_image() -> None:
    names = ["/etc/passwd", "../../root/x", "a/../../b", "./c//d/"]
    contents = scan(archive(*(file(name, b"1") for name in names)))
    assert [entry.path for entry in contents.files] == ["b", "c/d", "etc/passwd", "root/x"]
    (link,) = scan(archive(file("x", type=tarfile.LNKTYPE, linkname="/../etc/shadow"))).files
    assert link.content == "etc/shadow"


def test_the_last_of_two_entries_of_a_path_counts() -> None:
    name = "a-1.dist-info/METADATA"
    contents = scan(archive(file(name, b"Name: a\nVersion: 1"), file(name, type=tarfile.SYMTYPE, linkname="x")))
    assert [entry.kind for entry in contents.files] == ["symlink"]
    assert contents.packages == {}


def test_a_bomb_is_refused_in_a_sentence() -> None:
    data = PACKERS["gzip"](archive(file("zeros", bytes(2 * 2**20))))
    with pytest.raises(EngineError, match="more than 9 entries and 1000000 bytes"):
        scan(data, limits=LayerLimits(bytes=1_000_000, entries=9))
    with pytest.raises(EngineError, match="too many for a list of files"):
        scan(archive(file("a-1.dist-info/RECORD", bytes(65 * 2**20))))


def test_gpu_code_is_asked_of_elf_files_alone() -> None:
    """Whatever part of a file it reads, the hash is that of the whole file."""
    small, large = b"\x7fELF" + b"1" * 100, b"\x7fELF" + b"2" * (3 * 2**20)
    layer = archive(file("a.so", small), file("b.so", large), file("c.txt", b"text"), file("d", b""))
    for length in (0, 50, 2**20 + 1, -1):
        parts = list[bytes]()

        def gpu_code(
            content: IO[bytes], size: int, length: int = length, parts: list[bytes] = parts
        ) -> Mapping[str, int]:
            parts.append(content.read(length))
            return {"sm_90": size}

        files = {entry.path: entry for entry in scan(layer, gpu_code=gpu_code).files}
        assert {path: entry.gpu_code for path, entry in files.items()} == {
            "a.so": {"sm_90": len(small)}, "b.so": {"sm_90": len(large)}, "c.txt": {}, "d": {}
        }  # fmt: skip
        assert parts == [data if length < 0 else data[:length] for data in (small, large)]
        assert [files[name].content for name in ("a.so", "b.so")] == [
            hashlib.sha256(one).hexdigest() for one in (small, large)
        ]


def test_packages_and_their_lists_are_read() -> None:
    layer = archive(
        file("v/A_b-1.0.dist-info/METADATA", b"Name: A_b\nVersion: 1.0"),
        file("v/A_b-1.0.dist-info/RECORD", b'a/__init__.py,sha256=x,3\n"a/b,c.py",,\n../bin/a,,\n'),
        file("v/old.egg-info/PKG-INFO", b"Name: old\nVersion: 2"),
        file("v/old.egg-info/installed-files.txt", b"../old.py\nPKG-INFO\n"),
        file("v/single-3.egg-info", b"Name: single\nVersion: 3"),
        file("var/lib/dpkg/status", b"Package: tini\nStatus: install ok installed\nVersion: 0.19-1\n"),
        file("var/lib/dpkg/info/tini:amd64.list", b"/.\n/usr/bin/tini\n/usr/share/with space\n"),
        file("var/lib/dpkg/info/tini.md5sums", b"d41d8cd98f00b204e9800998ecf8427e  usr/bin/tini\n"),
    )
    contents = scan(layer)
    assert {path: [tuple(one) for one in ones] for path, ones in contents.packages.items()} == {
        "v/A_b-1.0.dist-info/METADATA": [("python", "a-b", "1.0")],
        "v/old.egg-info/PKG-INFO": [("python", "old", "2")],
        "v/single-3.egg-info": [("python", "single", "3")],
        "var/lib/dpkg/status": [("debian", "tini", "0.19-1")],
    }
    assert contents.lists == {
        "v/A_b-1.0.dist-info/RECORD": ("a/__init__.py", "a/b,c.py", "../bin/a"),
        "v/old.egg-info/installed-files.txt": ("../old.py", "PKG-INFO"),
        "var/lib/dpkg/info/tini:amd64.list": ("/.", "/usr/bin/tini", "/usr/share/with space"),
        "var/lib/dpkg/info/tini.md5sums": ("usr/bin/tini",),
    }
    assert {entry.path: entry.size for entry in contents.files}["v/single-3.egg-info"] == len(
        "Name: single\nVersion: 3"
    )
