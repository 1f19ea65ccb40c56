"""Libraries that leave out of their files what is never read of them.

It is zeros in memory, as a program's empty variables are, and all the rest stays at its address: nothing that points
somewhere has to be changed. For that a segment is loaded in pieces, between which are some that have nothing in the
file.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from .elf import (
    LOAD,
    NO_BITS,
    PROGRAM,
    READABLE,
    SEGMENT_SIZE,
    TABLE,
    Section,
    Segment,
    header_with_tables,
    packed_sections,
    packed_segments,
    sections_at,
    sections_of,
    segments_of,
)

Range = tuple[int, int]  # from, to: of places in the file
Change = tuple[int, bytes]  # what comes to a place in the file

BEGIN = 16  # bytes of a part that stay in the file, as zeros that tell that it is gone
_PAGE = 4096
# Each hole is two mappings more in a process, of which the kernel grants 65,530.
_LEAST = 2**16  # bytes
_MOST = 1000  # of a library


def with_holes(library: bytes, unread: Iterable[Range]) -> bytes:
    """A library of x86-64 without these parts of its segments: zeros in memory, and whole pages not in the file.

    One that is small stays in the file, as zeros, and the new table of segments is inside of another. A section that
    has a hole says that it has nothing in the file (SHT_NOBITS): it cannot say that it has only some of it there.
    Raises ValueError for parts that overlap or are not loaded, and for a library that needs more than whole pages.
    """
    parts, segments, sections = sorted(unread), segments_of(library), sections_of(library)
    if any(start < end for (_, end), (start, _) in itertools.pairwise(parts)):
        raise ValueError("two parts overlap")
    if any(section.alignment > _PAGE for section in sections):
        raise ValueError("it would not stand where it has to")
    found = {part: _hole(part, segments) for part in parts}
    worth = {*sorted((hole for hole in found.values() if hole), key=_size, reverse=True)[:_MOST]}
    room = -(-(len(segments) + 2 * len(worth)) * SEGMENT_SIZE // _PAGE) * _PAGE
    place = min((hole for hole in worth if _size(hole) > room), default=None)
    if not place:
        return _written(library, [(start, bytes(end - start)) for start, end in parts], [])
    zeros = [piece for part, hole in found.items() for piece in _zeros(part, hole if hole in worth else None)]
    # The table goes to the begin of a hole, so that it is in memory, too: some look for it there.
    holes = [(start + room, end) if (start, end) == place else (start, end) for start, end in sorted(worth)]
    table = packed_segments(_in_pieces(segments, holes))
    moved = packed_sections([_moved(section, holes) for section in sections])
    at = sections_at(library)
    header = header_with_tables(library, _shifted(place[0], holes), len(table) // SEGMENT_SIZE, _shifted(at, holes))
    return _written(library, [(0, header), (place[0], table.ljust(room, b"\0")), (at, moved), *zeros], holes)


def _size(part: Range) -> int:
    return part[1] - part[0]


def _hole(part: Range, segments: Iterable[Segment]) -> Range | None:
    """The whole pages of a part behind its begin, if they are worth it."""
    for segment in segments:
        if segment.kind == LOAD and segment.offset <= part[0] and part[1] <= segment.end:
            shift = segment.address - segment.offset
            start = -(-(part[0] + BEGIN + shift) // _PAGE) * _PAGE - shift
            end = (part[1] + shift) // _PAGE * _PAGE - shift
            return (start, end) if end - start >= _LEAST else None
    raise ValueError("no segment has it in the file")


def _shifted(place: int, holes: Iterable[Range]) -> int:
    """Where that is in the new file which was there in the old one."""
    return place - sum(min(place, end) - start for start, end in holes if start < place)


def _moved(section: Section, holes: Sequence[Range]) -> Section:
    has_hole = section.kind == PROGRAM and any(section.offset <= start < section.end for start, _ in holes)
    return replace(section, kind=NO_BITS if has_hole else section.kind, offset=_shifted(section.offset, holes))


def _in_pieces(segments: Iterable[Segment], holes: Sequence[Range]) -> list[Segment]:
    """The segments of the new file."""
    rows = list[Segment]()
    for segment in segments:
        if segment.kind == LOAD:
            rows += _pieces(segment, holes)
        elif segment.kind != TABLE:  # it would have to come first, and nobody needs it in a library
            rows.append(replace(segment, offset=_shifted(segment.offset, holes)))
    return rows


def _pieces(segment: Segment, holes: Sequence[Range]) -> list[Segment]:
    """A segment's pieces with something in the file, and the holes between, which nothing writes to or runs."""
    inside = [hole for hole in holes if segment.offset <= hole[0] < segment.end]
    rows, at = list[Segment](), segment.offset
    for start, end in inside:
        rows.append(_piece(segment, at, start, holes))
        rows.append(replace(_piece(segment, start, end, holes), flags=READABLE, file_size=0))
        at = end
    last = _piece(segment, at, segment.end, holes)
    return [*rows, replace(last, size=segment.address + segment.size - last.address)]


def _piece(segment: Segment, start: int, end: int, holes: Iterable[Range]) -> Segment:
    """What a segment loads from one place of the old file to another."""
    there = start - segment.offset  # as far behind the segment's begin in memory
    return replace(
        segment,
        offset=_shifted(start, holes),
        address=segment.address + there,
        physical=segment.physical + there,
        file_size=end - start,
        size=end - start,
        alignment=min(segment.alignment, _PAGE),
    )


def _zeros(part: Range, hole: Range | None) -> list[Change]:
    """Zeros for what of a part is not in its hole."""
    edges = [part[0], *(hole or ()), part[1]]
    return [(start, bytes(end - start)) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _written(library: bytes, changes: Iterable[Change], holes: Iterable[Range]) -> bytes:
    """The library with these bytes in place of its own, without the holes."""
    whole, at, pieces = memoryview(library), 0, list[memoryview | bytes]()
    edits = [*((start, start + len(new), new) for start, new in changes), *((start, end, b"") for start, end in holes)]
    for start, end, new in sorted(edits):
        if start < at:
            raise ValueError("a part is where a table is")
        pieces += (whole[at:start], new)
        at = end
    return b"".join((*pieces, whole[at:]))
