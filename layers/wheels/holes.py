"""Libraries that leave out of their files what is never read of them.

It is zeros in memory, as a program's empty variables are, and all the rest stays at its address: nothing that points
somewhere has to be changed. For that a segment is loaded in pieces, each of which is larger in memory than in the file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .elf import (
    LOAD,
    NO_BITS,
    PROGRAM,
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

_PAGE = 4096
_LEAST = 2**16  # bytes: each hole is two mappings more in a process, and the kernel's default limit is 65,530


def with_holes(library: bytes, unread: Sequence[Range]) -> bytes:
    """A library of x86-64 where these parts of its segments are zeros; whole pages of them are not in the file.

    The parts must not overlap. One that is small stays in the file, as zeros. A section that has a hole says that it
    has nothing in the file (SHT_NOBITS): it cannot say that it has only some of it there.
    """
    segments = segments_of(library)
    cuts = [(part, _hole(part, segments)) for part in sorted(unread)]
    zeros = [piece for part, hole in cuts for piece in _zeros(part, hole)]
    whole = [one for _, hole in cuts for one in hole]
    room, place = _room((len(segments) + len(whole)) * SEGMENT_SIZE, whole)
    if not place:
        return _written(library, [(start, bytes(end - start)) for start, end in unread], [])
    # The table goes to the begin of a hole, so that it is in memory, too: some look for it there.
    holes = [(start + room, end) if (start, end) == place else (start, end) for start, end in whole]
    table = packed_segments(_in_pieces(segments, holes))
    sections_from = sections_at(library)
    header = header_with_tables(
        library, _shifted(place[0], holes), len(table) // SEGMENT_SIZE, _shifted(sections_from, holes)
    )
    sections = packed_sections([_moved(section, holes) for section in sections_of(library)])
    tables = [(0, header), (place[0], table.ljust(room, b"\0")), (sections_from, sections)]
    return _written(library, [*tables, *zeros], holes)


def _hole(part: Range, segments: Iterable[Segment]) -> list[Range]:
    """The whole pages of a part, if they are worth it; its first bytes stay, as zeros that tell that it is gone."""
    for segment in segments:
        if segment.kind == LOAD and segment.offset <= part[0] and part[1] <= segment.end:
            shift = segment.address - segment.offset
            start, end = -(-(part[0] + shift + 1) // _PAGE) * _PAGE - shift, (part[1] + shift) // _PAGE * _PAGE - shift
            return [(start, end)] if end - start >= _LEAST else []
    return []


def _room(size: int, holes: Sequence[Range]) -> tuple[int, Range | None]:
    """The whole pages that the table needs, and the first hole that has place for it and is one still."""
    room = -(-size // _PAGE) * _PAGE
    return room, next((hole for hole in holes if hole[1] - hole[0] > room), None)


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
    inside = [hole for hole in holes if segment.offset <= hole[0] < segment.end]
    starts = [segment.offset, *(end for _, end in inside)]
    ends = [*(start for start, _ in inside), segment.end]
    rows = list[Segment]()
    for start, end in zip(starts, ends, strict=True):
        there = start - segment.offset  # as far behind the segment's begin in memory
        rows.append(
            replace(
                segment,
                offset=_shifted(start, holes),
                address=segment.address + there,
                physical=segment.physical + there,
                file_size=end - start,
                alignment=min(segment.alignment, _PAGE),
            )
        )
    followers = [*(row.address for row in rows[1:]), segment.address + segment.size]
    return [replace(row, size=next_one - row.address) for row, next_one in zip(rows, followers, strict=True)]


def _zeros(part: Range, hole: Iterable[Range]) -> list[Change]:
    """Zeros for what of a part is not in its hole."""
    edges = [part[0], *(edge for one in hole for edge in one), part[1]]
    return [(start, bytes(end - start)) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _written(library: bytes, changes: Iterable[Change], holes: Iterable[Range]) -> bytes:
    """The library with these bytes in place of its own, without the holes."""
    whole, at, pieces = memoryview(library), 0, list[memoryview | bytes]()
    edits = [*((start, start + len(new), new) for start, new in changes), *((start, end, b"") for start, end in holes)]
    for start, end, new in sorted(edits):
        pieces += (whole[at:start], new)
        at = end
    return b"".join((*pieces, whole[at:]))
