"""A stripped library: what a loader reads is as it was, and the rest is gone."""

import ctypes
import importlib.util
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.wheels.strip import strip
from tests.libraries import SECTIONS, library

WHOLE = library()


def sections(data: bytes) -> list[tuple[str, int, int, int, bytes]]:
    """Name, flags, address, size and bytes of each, by a library's own table."""
    (at,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, at + number * size) for number in range(count)]
    text = data[rows[names][4] : rows[names][4] + rows[names][5]]
    return [
        (text[row[0] : text.index(b"\0", row[0])].decode(), row[2], row[3], row[5],
         b"" if row[1] == 8 else data[row[4] : row[4] + row[5]])
        for row in rows
    ]  # fmt: skip


def test_what_is_loaded_stays_at_its_place_and_under_its_number() -> None:
    before, after = sections(WHOLE), sections(strip(WHOLE))
    loaded = [number for number, section in enumerate(before) if section[1]]
    assert [before[number] for number in loaded] == [after[number] for number in loaded]
    assert [name for name, *_ in after] == ["", ".dynsym", ".text", "", ".data", ".bss", ".shstrtab"]
    assert after[3] == ("", 0, 0, 0, b"")


def test_the_rest_is_gone() -> None:
    less = strip(WHOLE)
    missing = [data for name, _, is_loaded, data in SECTIONS if not is_loaded and name != ".comment"]
    assert all(data in WHOLE and data not in less for data in missing)
    assert len(less) < len(WHOLE) - sum(map(len, missing))
    assert strip(less) == less


def test_the_segments_are_as_they_were() -> None:
    less = strip(WHOLE)
    (end,) = struct.unpack_from("<Q", WHOLE, 64 + 32)
    assert less[64:end] == WHOLE[64:end]
    assert less[:40] == WHOLE[:40]


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + WHOLE[6:], WHOLE[:64], WHOLE[:-1], b"\x7fELF\x02\x01"]
)
def test_what_is_no_library_stays_as_it_is(data: bytes) -> None:
    assert strip(data) == data


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_a_damaged_library_is_no_error(place: int, byte: int) -> None:
    damaged = WHOLE[:place] + bytes([byte]) + WHOLE[place + 1 :]
    assert len(strip(damaged)) <= len(damaged)


@pytest.mark.parametrize("module", ["yaml._yaml", "zstandard.backend_c", "isal.isal_zlib"])
def test_a_stripped_library_is_loaded(module: str, tmp_path: Path) -> None:
    value = importlib.util.find_spec(module)
    assert value
    assert value.origin
    whole = Path(value.origin).read_bytes()
    (tmp_path / "lib.so").write_bytes(strip(whole))
    assert (tmp_path / "lib.so").stat().st_size < len(whole)
    entry = f"PyInit_{module.rpartition('.')[2]}"
    assert ctypes.CDLL(str(tmp_path / "lib.so"))[entry]
