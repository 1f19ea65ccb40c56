"""GPU code in libraries that have fat binaries, whole and damaged."""

import io
import struct
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.libraries import library
from torchbake.contents.gpu_code import gpu_code_of, order_of

ELF = b"\x7fELF\x02\x01".ljust(64, b"\0")
MAGIC = 0xBA55ED50
PTX, MACHINE, LTO = 1, 2, 8
Piece = tuple[int, int, int, int]  # kind, architecture, bytes, flags


def fat_binary(pieces: Sequence[Piece], *, header: int = 64, version: int = 1, more: int = 0) -> bytes:
    """A fat binary of these pieces; ``more`` is added to the length that it states."""
    data = b"".join(
        struct.pack("<HHIQIIHHI8xQ", kind, 0x101, header, size, 0, 0, 0, 0, architecture, flags).ljust(header, b"\0")
        + b"\x01" * size
        for kind, architecture, size, flags in pieces
    )
    return struct.pack("<IHHQ", MAGIC, version, 16, len(data) + more) + data


def read(data: bytes, chunk: int = 2**20) -> dict[str, int]:
    """Read through a file that gives few bytes at once and cannot seek."""

    class Stream(io.RawIOBase):
        place = 0

        def read(self, size: int = -1) -> bytes:
            piece = data[self.place : self.place + min(size, chunk)]
            self.place += len(piece)
            return piece

    return dict(gpu_code_of(Stream(), len(data)))  # type: ignore[arg-type]


def test_bytes_are_counted_by_kind_and_architecture() -> None:
    one = fat_binary([(MACHINE, 80, 100, 0), (MACHINE, 90, 200, 0x100000), (PTX, 90, 30, 0)])
    other = fat_binary([(MACHINE, 80, 1, 0x2011), (LTO, 50, 7, 0x100000), (MACHINE, 120, 9, 0)], header=112)
    whole = ELF + b"code" * 1000 + one + bytes(5) + other + b"end"
    expected = {"compute_90": 30, "lto_50": 7, "sm_80": 101, "sm_90a": 200, "sm_120": 9}
    for chunk in (1, 3, 61, 2**20):
        matches = read(whole, chunk)
        assert list(matches.items()) == list(expected.items()), chunk


def test_a_piece_larger_than_a_chunk_is_passed_over() -> None:
    size = 3 * 2**20 + 5
    code = fat_binary([(MACHINE, 80, size, 0), (MACHINE, 90, 4, 0)])
    assert read(ELF + code) == {"sm_80": size, "sm_90": 4}


def test_other_files_have_no_gpu_code() -> None:
    binary = fat_binary([(MACHINE, 80, 100, 0)])
    for data in (b"", b"\x7fELF", binary, b"\x7fELF\x01\x01" + bytes(58) + binary, library(), ELF):
        assert read(data) == {}, data[:8]


def test_a_cubin_is_code_as_a_whole() -> None:
    for abi, flags, expected in ((51, 0x00340534, "sm_52"), (65, 0x06006402, "sm_100"), (65, 0x06005A04, "sm_90")):
        header = struct.pack("<6sxB10xH28xI12x", ELF[:6], abi, 190, flags)
        assert len(header) == 64
        assert read(header + b"code" * 9) == {expected: 100}
        assert read(header[:18] + struct.pack("<H", 62) + header[20:]) == {}
    assert read(struct.pack("<6sxB10xH28xI12x", ELF[:6], 0, 190, 0x5A) + b"code") == {}


def test_a_damaged_fat_binary_is_not_counted_and_the_next_is() -> None:
    good = fat_binary([(MACHINE, 90, 10, 0)])
    pieces = [(MACHINE, 80, 100, 0)]
    for damaged in (
        fat_binary(pieces, version=2),
        fat_binary(pieces, more=2**40),
        fat_binary(pieces, header=48),
        fat_binary(pieces, more=-1),
        struct.pack("<IHHQ", MAGIC, 1, 16, 8) + bytes(8),
        struct.pack("<IHHQ", MAGIC, 1, 24, 0),
    ):
        assert read(ELF + damaged + good) == {"sm_90": 10}, damaged[:80]
    for chunk in (61, 2**20):
        assert read(ELF + good + fat_binary(pieces)[:-1], chunk) == {"sm_90": 10}, chunk
    assert read(ELF + good[:12]) == {}


def test_a_kind_that_is_not_known_and_empty_code_are_not_counted() -> None:
    assert read(ELF + fat_binary([(64, 80, 100, 0), (MACHINE, 80, 0, 0), (PTX, 80, 5, 0)])) == {"compute_80": 5}


@given(st.binary(max_size=300), st.integers(min_value=1, max_value=40))
def test_any_bytes_are_read_without_an_error(data: bytes, chunk: int) -> None:
    assert sum(read(ELF + struct.pack("<I", MAGIC) + data, chunk).values()) <= len(data)


def test_architectures_are_in_the_order_of_their_numbers() -> None:
    names = ["compute_90", "sm_80", "sm_90", "sm_90a", "sm_100"]
    assert sorted([*names[3:], *names[:3]], key=order_of) == names
    assert order_of("other") == ("other", 0, "")
