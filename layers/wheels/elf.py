"""The tables of a shared library of 64 bits: what its segments load, and what its sections hold.

Source: System V ABI, https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html
"""

import mmap
import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass

Readable = bytes | mmap.mmap

MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
HEADER_SIZE = 64
LOAD, TABLE = 1, 6  # PT_LOAD, PT_PHDR
PROGRAM, STRINGS, NO_BITS = 1, 3, 8  # SHT_PROGBITS, SHT_STRTAB, SHT_NOBITS
LOADED = 2  # SHF_ALLOC
READABLE = 4  # PF_R
_SEGMENTS_AT, _SECTIONS_AT = 32, 40  # where the header tells the places of the two tables
_COUNTS_AT = 54  # where it tells the sizes of their rows, and how many there are
_COUNTS = struct.Struct("<HHHHH")  # e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
SEGMENT_SIZE = _SEGMENT.size  # bytes, of its row


@dataclass(frozen=True)
class Segment:
    """A row of the program headers, its fields in their order."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    size: int
    alignment: int

    @property
    def end(self) -> int:
        """Of what it has in the file."""
        return self.offset + self.file_size


@dataclass(frozen=True)
class Section:
    """A row of the section headers, its fields in their order."""

    name: int
    kind: int
    flags: int
    address: int = 0
    offset: int = 0
    size: int = 0
    link: int = 0
    info: int = 0
    alignment: int = 0
    entry: int = 0

    @property
    def end(self) -> int:
        """Of what it has in the file."""
        return self.offset + (0 if self.kind == NO_BITS else self.size)


def segments_of(library: Readable) -> list[Segment]:
    """Raises struct.error for a file that is cut off, or ValueError for other tables, as the functions below do."""
    (at,) = struct.unpack_from("<Q", library, _SEGMENTS_AT)
    size, count, *_ = _COUNTS.unpack_from(library, _COUNTS_AT)
    if size != _SEGMENT.size:
        raise ValueError("its segments are not told as the ABI has it")
    return [Segment(*_SEGMENT.unpack_from(library, at + number * _SEGMENT.size)) for number in range(count)]


def sections_of(library: Readable) -> list[Section]:
    (at,) = struct.unpack_from("<Q", library, _SECTIONS_AT)
    *_, size, count, _ = _COUNTS.unpack_from(library, _COUNTS_AT)
    if size != _SECTION.size:
        raise ValueError("its sections are not told as the ABI has it")
    return [Section(*_SECTION.unpack_from(library, at + number * _SECTION.size)) for number in range(count)]


def names_of(library: Readable, sections: Sequence[Section]) -> bytes:
    """The sections' names, each with a zero behind it; empty where they have none."""
    *_, number = _COUNTS.unpack_from(library, _COUNTS_AT)
    return library[sections[number].offset : sections[number].end] if number else b""


def name_of(section: Section, names: bytes) -> bytes:
    return names[section.name : names.index(b"\0", section.name)]


def table_end(library: Readable) -> int:
    """Where the program headers end in the file."""
    (at,) = struct.unpack_from("<Q", library, _SEGMENTS_AT)
    _, count, *_ = _COUNTS.unpack_from(library, _COUNTS_AT)
    return int(at) + int(count) * _SEGMENT.size


def sections_at(library: Readable) -> int:
    """Where the section headers are in the file."""
    return int(struct.unpack_from("<Q", library, _SECTIONS_AT)[0])


def packed_segments(rows: Sequence[Segment]) -> bytes:
    return b"".join(_SEGMENT.pack(*astuple(row)) for row in rows)


def packed_sections(rows: Sequence[Section]) -> bytes:
    return b"".join(_SECTION.pack(*astuple(row)) for row in rows)


def header_with_sections(library: Readable, at: int, count: int, names: int) -> bytes:
    """The file's header for section headers at another place; the one numbered ``names`` is of their names."""
    header = bytearray(library[:HEADER_SIZE])
    struct.pack_into("<Q", header, _SECTIONS_AT, at)
    struct.pack_into("<HH", header, _COUNTS_AT + 6, count, names)
    return bytes(header)


def header_with_tables(library: Readable, segments_at: int, count: int, sections_at: int) -> bytes:
    """The file's header for tables at other places, with another number of segments."""
    header = bytearray(library[:HEADER_SIZE])
    struct.pack_into("<QQ", header, _SEGMENTS_AT, segments_at, sections_at)
    struct.pack_into("<H", header, _COUNTS_AT + 2, count)
    return bytes(header)
