"""Layers that are read and written again: what stays of each entry, and that a layer has one form whoever made it."""

import io
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.unit.layouts import Entry, file
from torchbake.oci.layer_archive import write_layer
from torchbake.oci.layer_stream import unpacked_digest
from torchbake.oci.layer_tree import members, read_changes
from torchbake.oci.tree import Change

LATEST = 1735689600
CAPABILITY = "SCHILY.xattr.security.capability"
# With a byte that is no UTF-8.
PING = b"\x01\x00\x00\x02\x00\x20\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00".decode(
    errors="surrogateescape"
)
LONG = f"usr/{'long/' * 40}ü"


def entry(name: str, kind: bytes, **changes: Any) -> Entry:
    return file(name, type=kind, **changes)


ENTRIES = (
    entry("usr", tarfile.DIRTYPE, mode=0o2755, uid=1000, gid=50, mtime=5),
    file("usr/ping", b"ping" * 9000, mode=0o104755, uid=3, gid=4, mtime=LATEST + 9, pax_headers={CAPABILITY: PING}),
    entry("usr/pong", tarfile.LNKTYPE, linkname="usr/ping"),
    entry("usr/link", tarfile.SYMTYPE, linkname="../etc/ping", mode=0o755, mtime=9),
    entry("usr/null", tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3),
    entry("usr/disk", tarfile.BLKTYPE, mode=0o660, gid=6, devmajor=259, devminor=1),
    entry("usr/pipe", tarfile.FIFOTYPE, mode=0o600),
    file("usr/empty", mtime=7, mode=0o600),
    entry("usr/.wh.gone", tarfile.REGTYPE),
    file(LONG, b"?", pax_headers={"SCHILY.xattr.user.own": "x", "LIBARCHIVE.creationtime": "1", "mtime": "12.75"}),
)


def archive(entries: Sequence[Entry], form: int = tarfile.PAX_FORMAT) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as packed:
        for info, data in entries:
            packed.addfile(info, io.BytesIO(data))
    stream.seek(0)
    return stream


def changes_of(entries: Sequence[Entry]) -> list[Change]:
    with tarfile.open(fileobj=archive(entries)) as read:
        return read_changes(read)


def write(stream: io.BytesIO, target: Path) -> bytes:
    """The archive of the layer that is written of another one's."""
    with tarfile.open(fileobj=stream) as read:
        changes = sorted(read_changes(read), key=lambda change: change[0])
        layer = write_layer(target, members(changes, read, LATEST), threads=2)
    assert unpacked_digest(target) == layer.diff_id
    return zstandard.ZstdDecompressor().stream_reader(target.open("rb")).read()


def test_a_written_layer_has_the_same_files(tmp_path: Path) -> None:
    data = write(archive(ENTRIES), tmp_path / "layer")
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        again = dict(read_changes(read))
        matches = {info.name: info for info in read}
        assert read.extractfile("usr/pong").read() == b"ping" * 9000  # type: ignore[union-attr]
    assert again == dict(changes_of(ENTRIES))
    assert [*matches] == sorted(info.name for info, _ in ENTRIES)
    for info, _ in ENTRIES:
        if info.name == "usr/.wh.gone":
            continue
        one = matches[info.name]
        mode = 0o777 if info.issym() else matches["usr/ping"].mode if info.islnk() else stat.S_IMODE(info.mode)
        assert (one.type, one.mode, one.linkname) == (info.type, mode, info.linkname)
        if not info.islnk():
            assert (one.uid, one.gid, one.size) == (info.uid, info.gid, info.size)
            assert (one.devmajor, one.devminor) == (info.devmajor, info.devminor)
    assert PING.encode(errors="surrogateescape") in data


def test_a_written_layer_has_no_other_headers_and_no_later_time(tmp_path: Path) -> None:
    data = write(archive(ENTRIES), tmp_path / "layer")
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        matches = {info.name: info for info in read}
    headers = {name: {*info.pax_headers} - {"hdrcharset"} for name, info in matches.items() if info.pax_headers}
    assert headers == {"usr/ping": {CAPABILITY}, "usr/pong": {CAPABILITY}, LONG: {"path"}}
    times = {name: info.mtime for name, info in matches.items()}
    assert times | {"usr": LATEST, "usr/ping": LATEST, "usr/link": 9, "usr/empty": 7, LONG: 12} == times
    assert max(times.values()) == LATEST
    assert {(info.uname, info.gname) for info in matches.values()} == {("", "")}


def test_the_form_of_an_archive_is_not_in_the_layer(tmp_path: Path) -> None:
    """Builders write names, owners and parts of seconds otherwise, in other formats and in another order."""
    folder = entry("a", tarfile.DIRTYPE)
    entries = [folder, file("a/b", b"1", mtime=9), entry("a/c", tarfile.LNKTYPE, linkname="a/b"), file("d", mtime=8)]
    expected = write(archive(entries), tmp_path / "layer")
    names: dict[str, Any] = {"uname": "root", "gname": "root", "mode": 0o100644}
    for form, prefix, kind, more in (
        (tarfile.USTAR_FORMAT, "./", tarfile.AREGTYPE, 0),
        (tarfile.GNU_FORMAT, "/", tarfile.REGTYPE, 0),
        (tarfile.PAX_FORMAT, "", tarfile.CONTTYPE, 0.25),
    ):
        others = [
            file(f"{prefix}d", type=kind, mtime=8 + more, **names),
            file(f"{prefix}a/c", b"1", type=kind, mtime=9 + more, **names),
            entry(f"{prefix}a/b", tarfile.LNKTYPE, linkname=f"{prefix}a/c"),
            entry(f"{prefix}a/", tarfile.DIRTYPE, mtime=1, mode=folder[0].mode),
        ]
        assert write(archive(others, form), tmp_path / "layer") == expected


def test_a_later_entry_of_a_name_counts(tmp_path: Path) -> None:
    data = write(archive([file("a", b"1"), file("a", b"22", mode=0o600)]), tmp_path / "layer")
    assert data == write(archive([file("a", b"22", mode=0o600)]), tmp_path / "layer")


def test_a_hard_link_to_a_file_of_another_layer_is_unreadable() -> None:
    with pytest.raises(tarfile.ReadError, match="usr/ping"):
        changes_of([entry("usr/pong", tarfile.LNKTYPE, linkname="usr/ping")])
