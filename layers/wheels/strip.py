"""Removes symbols for linkers and debuggers, and debug information, from libraries.

Source: System V ABI, https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html
"""

import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_SEGMENTS_AT, _SECTIONS_AT = 32, 40  # places of the tables' offsets in the header
_COUNTS_AT = 54  # place of the rows' sizes and counts in the header
_COUNTS = struct.Struct("<HHHHH")  # e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS, _STRINGS, _LOADED = 8, 3, 2  # SHT_NOBITS, SHT_STRTAB, SHF_ALLOC
_ALIGNMENT = 8


@dataclass(frozen=True)
class _Section:
    """A row of the section table, with the fields in their order."""

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
        return self.offset + (0 if self.kind == _NO_BITS else self.size)

    def packed(self) -> bytes:
        return _SECTION.pack(*astuple(self))


def strip(library: bytes) -> bytes:
    """Return a shared library with only its loaded sections, which keep their places and numbers.

    A file that is not such a library of 64 bits, or would not get smaller, is returned as it is.
    """
    try:
        smaller = _strip(library) if library.startswith(_MAGIC) else library
    except (struct.error, LookupError, ValueError):  # a truncated or invalid file
        return library
    return smaller if len(smaller) < len(library) else library


def _strip(library: bytes) -> bytes:
    (table_at,) = struct.unpack_from("<Q", library, _SECTIONS_AT)
    _, segments, _, sections, names = _COUNTS.unpack_from(library, _COUNTS_AT)
    table = [_Section(*_SECTION.unpack_from(library, table_at + n * _SECTION.size)) for n in range(sections)]
    loaded = [number for number, section in enumerate(table) if section.flags & _LOADED]
    if not loaded or not names:
        return library
    end = max([_end_of_segments(library, segments), *(table[number].end for number in loaded)])
    strings, empty = library[table[names].offset : table[names].end], _Section(0, 0, 0)
    # Symbols refer to sections by number, so an empty row replaces each removed section.
    remaining = [section if section.flags & _LOADED else empty for section in table[: loaded[-1] + 1]]
    return _assemble(library[:end], *_renamed(remaining, strings, end))


def _end_of_segments(library: bytes, count: int) -> int:
    at: int = struct.unpack_from("<Q", library, _SEGMENTS_AT)[0]
    rows = (_SEGMENT.unpack_from(library, at + number * _SEGMENT.size) for number in range(count))
    ends: list[int] = [row[2] + row[5] for row in rows]  # p_offset, p_filesz
    return max([at + count * _SEGMENT.size, *ends])


def _renamed(table: Sequence[_Section], names: bytes, at: int) -> tuple[list[_Section], bytes]:
    """Return the table with a new section of its names at the end, and the bytes of that section."""
    sections, text = list[_Section](), bytearray(b"\0")
    for section in table:
        name = names[section.name : names.index(b"\0", section.name) + 1]
        sections.append(replace(section, name=len(text) if name != b"\0" else 0))
        text += name if name != b"\0" else b""
    own = _Section(len(text), _STRINGS, 0, offset=at, alignment=1)
    text += b".shstrtab\0"
    return [*sections, replace(own, size=len(text))], bytes(text)


def _assemble(content: bytes, table: Sequence[_Section], names: bytes) -> bytes:
    tail = names + bytes(-(len(content) + len(names)) % _ALIGNMENT)
    header = bytearray(content[:64])
    struct.pack_into("<Q", header, _SECTIONS_AT, len(content) + len(tail))
    struct.pack_into("<HH", header, _COUNTS_AT + 6, len(table), len(table) - 1)
    return b"".join((header, memoryview(content)[64:], tail, *(section.packed() for section in table)))
