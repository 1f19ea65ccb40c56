"""A library that lost code for GPUs: the rest is in memory where it was, and the code is not in the file."""

import ctypes
import itertools
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.wheels.elf import segments_of
from layers.wheels.gpu_code import Gpu, codes, read_gpu
from layers.wheels.holes import with_holes
from layers.wheels.prune import pruned
from tests.libraries import DATA, GpuCode, gpu_library, library

LARGE = 100_000
BINARIES = (
    [GpuCode(capability=(5, 0), size=LARGE), GpuCode(capability=(6, 1), size=808), GpuCode(capability=(9, 0), size=80)],
    [GpuCode(capability=(6, 1), size=LARGE), GpuCode(capability=(9, 0), size=LARGE)],
    [GpuCode(capability=(8, 0), size=LARGE, ptx=True), GpuCode(capability=(12, 0), size=LARGE)],
)
WHOLE = gpu_library(*BINARIES)
HOPPER = (read_gpu("9.0"),)


def loaded(library: bytes, folder: Path) -> tuple[bytes, bytes]:
    """What a process finds behind the symbols `code` and `data`."""
    path = folder / f"{abs(hash(library))}.so"
    path.write_bytes(library)
    found, size = ctypes.CDLL(str(path)), sum(16 + sum(64 + code.size for code in codes) for codes in BINARIES)
    places = ((ctypes.c_char.in_dll(found, name), length) for name, length in (("code", size), ("data", len(DATA))))
    code, data = (ctypes.string_at(ctypes.addressof(place), length) for place, length in places)
    return code, data


def test_what_stays_is_in_memory_where_it_was(tmp_path: Path) -> None:
    (whole, data), (less, same_data) = (loaded(one, tmp_path) for one in (WHOLE, pruned(WHOLE, HOPPER)))
    assert data == same_data == DATA
    begin = next(codes(WHOLE)).start - 80  # two headers
    stays = bytearray(b"\1" * len(whole))
    for code in codes(WHOLE):
        if code.capability not in ((9, 0), (8, 0)):
            stays[code.start - begin : code.end - begin] = bytes(code.end - code.start)
    assert [a for a, keep in zip(less, stays, strict=True) if keep] == [
        a for a, keep in zip(whole, stays, strict=True) if keep
    ]


def test_what_goes_is_not_in_the_file() -> None:
    less = pruned(WHOLE, HOPPER)
    assert len(WHOLE) - len(less) > 3 * (LARGE - 2 * 4096) - 4096
    assert [code.capability for code in codes(less) if code.is_gone] == [(5, 0), (6, 1), (6, 1), (12, 0)]
    assert [code.capability for code in codes(less) if not code.is_gone] == [(9, 0), (9, 0), (8, 0)]
    assert pruned(less, HOPPER) == less


@pytest.mark.parametrize("gpus", [("5.0+",), ("5.0", "6.1", "9.0", "12.0")])
def test_without_anything_to_lose_a_library_is_as_it_was(gpus: tuple[str, ...]) -> None:
    assert pruned(WHOLE, tuple(map(read_gpu, gpus))) == WHOLE


def test_little_code_becomes_zeros_in_the_file() -> None:
    small = gpu_library([GpuCode(capability=(5, 0), size=4000), GpuCode(capability=(9, 0), size=80)])
    less = pruned(small, HOPPER)
    (gone, kept) = codes(less)
    assert len(less) == len(small)
    assert less[gone.start : gone.end] == bytes(4000)
    assert less[: gone.start] + less[gone.end :] == small[: gone.start] + small[gone.end :]
    assert (gone.is_gone, kept.is_gone) == (True, False)


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\n", library(), WHOLE[:64], WHOLE[:-1], gpu_library(*BINARIES, machine=183)]
)
def test_what_is_no_library_for_x86_64_stays_as_it_is(data: bytes) -> None:
    assert pruned(data, HOPPER) == data


def places_of_headers() -> list[int]:
    """Of all that says where something is: the tables, and the headers of fat binaries and of the code in them."""
    (sections,) = struct.unpack_from("<Q", WHOLE, 40)
    codes_at = (range(code.start - 80, code.start) for code in codes(WHOLE))
    return [*range(64 + 4 * 56), *range(sections, len(WHOLE)), *itertools.chain(*codes_at)]


@given(st.lists(st.tuples(st.sampled_from(places_of_headers()), st.integers(0, 255)), min_size=1, max_size=3))
def test_a_damaged_library_is_no_error(damage: list[tuple[int, int]]) -> None:
    damaged = bytearray(WHOLE)
    for place, byte in damage:
        damaged[place] = byte
    assert len(pruned(bytes(damaged), HOPPER)) <= len(damaged)


def test_a_fat_binary_without_any_size_ends() -> None:
    at = next(codes(WHOLE)).start - 80
    damaged = WHOLE[: at + 6] + bytes(10) + WHOLE[at + 16 :]
    assert pruned(damaged, HOPPER) == damaged


@pytest.mark.parametrize("before", range(3600, 3700, 8))
def test_the_table_of_segments_is_not_taken_for_code(before: int) -> None:
    """Wherever in a page the code begins whose place the table takes."""
    whole = gpu_library([GpuCode(capability=(9, 0), size=before), GpuCode(capability=(5, 0), size=LARGE)])
    less = pruned(whole, HOPPER)
    assert len(less) < len(whole)
    assert [code.is_gone for code in codes(less)] == [False, True]
    assert pruned(less, HOPPER) == less


def test_a_library_that_needs_more_than_whole_pages_stays_as_it_is() -> None:
    (sections,) = struct.unpack_from("<Q", WHOLE, 40)
    aligned = bytearray(WHOLE)
    struct.pack_into("<Q", aligned, sections + 64 + 48, 2**21)
    assert pruned(bytes(aligned), HOPPER) == aligned


@pytest.mark.parametrize("parts", [[(0x400, 0x20000), (0x18000, 0x30000)], [(0x400, len(WHOLE))]])
def test_parts_that_overlap_or_are_not_loaded_are_told(parts: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match=r"overlap|no segment"):
        with_holes(WHOLE, parts)


def test_what_is_a_hole_is_neither_written_nor_run() -> None:
    rows = [row for row in segments_of(pruned(WHOLE, HOPPER)) if row.kind == 1]
    assert {row.flags for row in rows if not row.file_size} == {4}
    assert [row.address + row.size for row in rows[:-2]] == [row.address for row in rows[1:-1]]


CODE = st.builds(
    GpuCode,
    capability=st.sampled_from([(5, 0), (6, 1), (7, 5), (8, 0), (9, 0), (12, 0)]),
    size=st.sampled_from([8, 4096, 65_536, 70_000, 90_008]),
    ptx=st.booleans(),
)


@given(
    st.lists(st.lists(CODE, min_size=1, max_size=3), min_size=1, max_size=4),
    st.builds(Gpu, st.sampled_from([5, 7, 8, 9]), st.just(0), st.booleans()),
)
def test_exactly_the_code_goes_that_no_gpu_runs(binaries: list[list[GpuCode]], gpu: Gpu) -> None:
    whole = gpu_library(*binaries)
    before, less = list(codes(whole)), pruned(whole, (gpu,))
    after = list(codes(less))
    assert [one.is_gone for one in after] == [not gpu.runs(one) for one in before]
    for old, new in zip(before, after, strict=True):
        assert new.is_gone or less[new.start : new.end] == whole[old.start : old.end]
    assert DATA in less
    assert pruned(less, (gpu,)) == less
