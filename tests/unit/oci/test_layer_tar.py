"""The strict reader of a layer's tar archive: damage, headers without end, and bombs."""

import io
import tarfile

import pytest

from tests.unit.layouts import archive, file
from torchbake.oci.layer_stream import UNREADABLE
from torchbake.oci.layer_tar import LayerLimits, LayerTar

SMALL = LayerLimits(bytes=10_000, entries=5)


def read(data: bytes, limits: LayerLimits = LayerLimits()) -> dict[str, bytes]:  # noqa: B008
    layer = LayerTar(io.BytesIO(data), limits)
    return {info.name: b"".join(layer.content(info)) if info.isreg() else b"" for info in layer}


def test_all_entries_are_read_with_their_content() -> None:
    long = "x" * 300 + "/é"
    contents = {"a": b"1" * 3000, "b/c": b"", long: b"2" * 512}
    assert read(archive(*(file(name, data) for name, data in contents.items()))) == contents
    assert read(bytes(10_240)) == {}


def test_names_that_are_not_text_stay_apart() -> None:
    data = archive(file("a", b"1"))
    names = [[*read(damaged(data, 0, bytes([byte])))] for byte in (0xFE, 0xFF)]
    assert names == [["\\xfe"], ["\\xff"]]


def damaged(data: bytes, place: int, new: bytes) -> bytes:
    """Change bytes of the first header, and its checksum with them."""
    block = bytearray(data[:512])
    block[place : place + len(new)] = new
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data[512:]


def test_a_cut_or_damaged_archive_is_an_error_at_any_place() -> None:
    data = archive(file("a", b"1" * 3000), file("b", b"2" * 3000))
    for length in (100, 512, 700, 3580, 4000, 4200, 5000, 7100):
        with pytest.raises(UNREADABLE):
            read(data[:length])
    second = data.index(b"b\0\0\0")
    with pytest.raises(tarfile.ReadError, match="header is damaged"):
        read(data[:second] + b"\xaa" * 20 + data[second + 20 :])


def test_a_sparse_file_has_its_holes() -> None:
    header, _ = file("sparse", b"")
    header.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "4096,3",
                          "GNU.sparse.size": "5000", "GNU.sparse.name": "hole"}  # fmt: skip
    header.size = 3
    with io.BytesIO() as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as packed:
            packed.addfile(header, io.BytesIO(b"abc"))
            packed.addfile(file("after", b"z")[0], io.BytesIO(b"z"))
        data = stream.getvalue()
    assert read(data) == {"hole": bytes(4096) + b"abc" + bytes(901), "after": b"z"}


def test_more_than_the_limits_is_refused_before_it_is_read() -> None:
    bomb = archive(file("a", b"x"))
    huge = damaged(bomb, 124, b"77777777777\0")
    many = archive(*(file(f"{number}", b"") for number in range(6)))
    for data in (huge, many):
        with pytest.raises(tarfile.ReadError, match="more than 5 entries and 10000 bytes"):
            read(data, SMALL)


def test_a_header_without_end_is_refused() -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 2**30
    with pytest.raises(tarfile.ReadError, match="header has more than"):
        read(info.tobuf() + bytes(2**16))


def test_a_sparse_map_without_end_is_refused() -> None:
    records = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x", "GNU.sparse.realsize": "9"}
    header, _ = file("sparse", b"", pax_headers=records)
    header.size = 512
    data = header.tobuf(tarfile.PAX_FORMAT) + b"99999999\n1\n".ljust(512, b"1")
    with pytest.raises(UNREADABLE):
        read(data)
