"""Code for GPUs in libraries.

nvcc puts code for several GPUs behind each other, into a fat binary; the driver reads what fits the GPU that is there.
Sources: `fatbinary_section.h` of the CUDA toolkit; binary and PTX compatibility,
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility.
"""

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .elf import LOAD, MAGIC, Readable, Segment, name_of, names_of, sections_of, segments_of
from .holes import BEGIN

_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
_MAGIC = b"\x50\xed\x55\xba"
_BINARY = struct.Struct("<4x2xHQ")  # (the magic number, version,) its header's size, the size of what follows
_CODE = struct.Struct("<H2xIQ12xI")  # kind, (version,) its header's size, its own size, (...,) for what GPU
_PTX, _MACHINE_CODE = 1, 2
# Jetson's and DRIVE's: machine code for them runs on no other GPU, and they are in no machine with an x86-64.
_TEGRA = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)}
_CHUNK = 2**16  # bytes that are looked through at once


@dataclass(frozen=True)
class Gpu:
    """A compute capability, with ``later`` or all later ones with it."""

    major: int
    minor: int
    later: bool = False

    def runs(self, code: "Code") -> bool:
        """Machine code runs on its own major, from its minor on; PTX is compiled for all later ones.

        Code for one GPU alone, or for its family (`sm_90a`, `sm_100f`), is told as that for all of its capability.
        """
        if code.kind == _PTX:
            return self.later or code.capability <= (self.major, self.minor)
        major, minor = code.capability
        if code.capability in _TEGRA:
            return code.capability == (self.major, self.minor)
        return major >= self.major if self.later else major == self.major and minor <= self.minor


@dataclass(frozen=True)
class Code:
    """What a fat binary has for one kind of GPU: from ``start`` to ``end`` in the file, unless it ``is_gone``."""

    kind: int
    capability: tuple[int, int]
    start: int
    end: int
    is_gone: bool


def read_gpu(text: str) -> Gpu:
    """``9.0``, or ``7.0+`` for that one and all later ones."""
    major, _, minor = text.removesuffix("+").partition(".")
    return Gpu(int(major), int(minor), text.endswith("+"))


def codes(library: Readable) -> Iterator[Code]:
    """The code for GPUs in a file. Raises struct.error, LookupError or ValueError for a damaged library."""
    if library[: len(MAGIC)] != MAGIC:
        return
    table, memory = sections_of(library), _Memory(library)
    names = names_of(library, table)
    for section in table:
        if names and name_of(section, names) in _SECTIONS:
            yield from _codes(memory, section.address, section.address + section.size)


def _codes(memory: "_Memory", at: int, end: int) -> Iterator[Code]:
    while (found := memory.find(_MAGIC, at, end)) is not None:
        header, size = _BINARY.unpack(memory.read(found, _BINARY.size))
        at, last = found + header, found + header + size
        if header < _BINARY.size or last > end:
            raise ValueError("a fat binary is not what it says")
        while at < last:
            kind, header, size, capability = _CODE.unpack(memory.read(at, _CODE.size))
            start, at = at + header, at + header + size
            if header < _CODE.size or at > last:
                raise ValueError("code in a fat binary is not what it says")
            if kind in (_PTX, _MACHINE_CODE) and size:
                is_gone = not any(memory.read(start, min(size, BEGIN)))
                yield Code(kind, divmod(capability, 10), *memory.places(start, at), is_gone)


class _Memory:
    """A library as it is loaded, by addresses."""

    def __init__(self, library: Readable) -> None:
        self._library = library
        self._segments = [segment for segment in segments_of(library) if segment.kind == LOAD]
        self._addresses = [segment.address for segment in self._segments]

    def read(self, address: int, size: int) -> bytes:
        """What is there, up to the end of its segment; zeros behind what that has in the file. Raises ValueError."""
        segment = self._segment(address)
        there = address - segment.address
        size, at = min(size, segment.size - there), segment.offset + there
        return self._library[at : min(at + size, segment.end)].ljust(size, b"\0")

    def find(self, what: bytes, at: int, end: int) -> int | None:
        """The first address between two where these few bytes stand; pages of zeros are between them at most."""
        while at + len(what) <= end:
            chunk = self.read(at, min(_CHUNK, end - at))
            place = chunk.find(what)
            if place >= 0:
                return at + place
            at += max(len(chunk) - len(what) + 1, 1)
        return None

    def places(self, start: int, end: int) -> tuple[int, int]:
        """Where in the file that is which is between two addresses."""
        segment = self._segment(start)
        return start - segment.address + segment.offset, end - segment.address + segment.offset

    def _segment(self, address: int) -> Segment:
        number = bisect.bisect_right(self._addresses, address) - 1
        if number < 0 or address >= self._addresses[number] + self._segments[number].size:
            raise ValueError("no segment loads what a section is said to have")
        return self._segments[number]
