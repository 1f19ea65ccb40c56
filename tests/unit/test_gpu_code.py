"""Which code for GPUs a library has, and which GPU runs it."""

import contextlib
import mmap
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.wheels.gpu_code import Code, Gpu, codes, read_gpu
from tests.libraries import GpuCode, gpu_library, library

MACHINE, PTX = 2, 1
WHOLE = gpu_library(
    [GpuCode(capability=(5, 0), size=24), GpuCode(capability=(9, 0), size=4096)],
    [GpuCode(capability=(12, 0), size=8, ptx=True)],
)


def code(text: str, kind: int = MACHINE) -> Code:
    major, minor = map(int, text.split("."))
    return Code(kind, (major, minor), 0, 8, is_gone=False)


def test_the_code_is_found_with_its_place() -> None:
    found = list(codes(WHOLE))
    assert [(one.kind, one.capability) for one in found] == [(MACHINE, (5, 0)), (MACHINE, (9, 0)), (PTX, (12, 0))]
    assert [WHOLE[one.start : one.end][:3] for one in found] == [b"\1\2\3"] * 3
    assert [one.end - one.start for one in found] == [24, 4096, 8]


def test_a_file_is_read_without_being_copied(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(WHOLE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert list(codes(view)) == list(codes(WHOLE))


@pytest.mark.parametrize("data", [b"", b"GROUP ( libnccl.so.2 )", library()])
def test_other_files_have_none(data: bytes) -> None:
    assert not list(codes(data))


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_a_damaged_library_is_told(place: int, byte: int) -> None:
    damaged = WHOLE[:place] + bytes([byte]) + WHOLE[place + 1 :]
    with contextlib.suppress(struct.error, LookupError, ValueError):
        assert len(list(codes(damaged))) <= len(damaged) // 64


@pytest.mark.parametrize(
    ("gpu", "runs", "not_run"),
    [
        ("9.0", ["9.0"], ["8.0", "10.0", "12.0"]),
        ("8.6", ["8.0", "8.6"], ["8.9", "7.5", "9.0", "8.7"]),
        ("7.5+", ["7.0", "7.5", "8.6", "12.0"], ["6.1", "5.0", "8.7", "10.1"]),
        ("8.7", ["8.0", "8.7"], ["8.9", "5.3"]),
    ],
)
def test_machine_code_runs_on_its_own_major_from_its_minor_on(gpu: str, runs: list[str], not_run: list[str]) -> None:
    assert all(read_gpu(gpu).runs(code(text)) for text in runs)
    assert not any(read_gpu(gpu).runs(code(text)) for text in not_run)


def test_ptx_is_compiled_for_all_later_gpus() -> None:
    assert read_gpu("9.0").runs(code("5.2", PTX))
    assert not read_gpu("9.0").runs(code("10.0", PTX))
    assert read_gpu("9.0+").runs(code("12.0", PTX))


def test_a_gpu_is_read() -> None:
    assert read_gpu("12.1") == Gpu(12, 1)
    assert read_gpu("7.0+") == Gpu(7, 0, later=True)
