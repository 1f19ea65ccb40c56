"""Libraries without what no loader reads: symbols for linkers and debuggers, and debug information."""

import struct
from collections.abc import Sequence
from dataclasses import replace

from .elf import (
    HEADER_SIZE,
    LOADED,
    MAGIC,
    STRINGS,
    Section,
    header_with_sections,
    name_of,
    names_of,
    packed_sections,
    sections_of,
    segments_of,
    table_end,
)

_ALIGNMENT = 8


def stripped(library: bytes) -> bytes:
    """A shared library with all that is loaded, at its place and under its number, and nothing behind it.

    What is no such library of 64 bits is given back as it is, and so is one that would not get smaller.
    """
    try:
        smaller = _stripped(library) if library.startswith(MAGIC) else library
    except (struct.error, LookupError, ValueError):  # a file that is cut off, or says what cannot be
        return library
    return smaller if len(smaller) < len(library) else library


def _stripped(library: bytes) -> bytes:
    table = sections_of(library)
    loaded = [number for number, section in enumerate(table) if section.flags & LOADED]
    names = names_of(library, table)
    if not loaded or not names:
        return library
    ends = [table_end(library), *(segment.end for segment in segments_of(library))]
    end = max([*ends, *(table[number].end for number in loaded)])
    return _assembled(library[:end], *_named_anew(_only_loaded(table[: loaded[-1] + 1]), names, end))


def _only_loaded(table: Sequence[Section]) -> list[Section]:
    """Symbols tell sections by their numbers, so one that goes leaves an empty row."""
    empty = Section(0, 0, 0)
    return [section if section.flags & LOADED else empty for section in table]


def _named_anew(table: Sequence[Section], names: bytes, at: int) -> tuple[list[Section], bytes]:
    """The table with a section of names at its end, of these names alone, and that section's bytes."""
    found, text = list[Section](), bytearray(b"\0")
    for section in table:
        name = name_of(section, names)
        found.append(replace(section, name=len(text) if name else 0))
        text += name + b"\0" if name else b""
    own = Section(len(text), STRINGS, 0, offset=at, alignment=1)
    text += b".shstrtab\0"
    return [*found, replace(own, size=len(text))], bytes(text)


def _assembled(content: bytes, table: Sequence[Section], names: bytes) -> bytes:
    tail = names + bytes(-(len(content) + len(names)) % _ALIGNMENT)
    header = header_with_sections(content, len(content) + len(tail), len(table), len(table) - 1)
    return b"".join((header, memoryview(content)[HEADER_SIZE:], tail, packed_sections(table)))
