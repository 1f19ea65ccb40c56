"""A small shared library as linkers write it, without a compiler."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

_SECTION = struct.Struct("<IIQQQQIIQQ")
_X86_64 = 62
_LOADED, _NO_BITS, _STRINGS = 2, 8, 3
# name, kind (SHT_*), whether it is loaded, and its bytes
SECTIONS = (
    (".dynsym", 11, True, b"symbols of the loader..."),
    (".text", 1, True, b"code" * 100),
    (".comment", 1, False, b"who made it"),
    (".data", 1, True, b"data" * 50),
    (".bss", _NO_BITS, True, b""),
    (".debug_info", 1, False, b"debug" * 1000),
    (".symtab", 2, False, b"symbols" * 1000),
    (".strtab", _STRINGS, False, b"names" * 1000),
)
_BSS = 5000  # bytes, in memory alone


def library() -> bytes:
    """One segment, with all sections above in their order, and the table of them at the end."""
    content, names, rows = bytearray(64 + 56), bytearray(b"\0"), [bytes(_SECTION.size)]
    loaded = 0
    for name, kind, is_loaded, data in SECTIONS:
        rows.append(_row(len(names), kind, is_loaded, len(content), len(data) or _BSS))
        names += name.encode() + b"\0"
        content += data
        loaded = len(content) if is_loaded else loaded
    rows.append(_row(len(names), _STRINGS, False, len(content), len(names) + 10))
    content += names + b".shstrtab\0"
    struct.pack_into("<IIQQQQQQ", content, 64, 1, 5, 0, 0, 0, loaded, loaded + _BSS, 4096)
    content[:64] = _header(_X86_64, 1, len(content), len(rows))
    return bytes(content) + b"".join(rows)


def _header(machine: int, segments: int, sections_at: int, sections: int) -> bytes:
    """The segments are told behind it, and the last section has the names."""
    counts = (64, 56, segments, 64, sections, sections - 1)
    return (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, sections_at, 0, *counts)
    )


def _row(name: int, kind: int, is_loaded: bool, offset: int, size: int) -> bytes:
    return _SECTION.pack(name, kind, _LOADED * is_loaded, offset, offset, size, 0, 0, 1, 0)


@dataclass(frozen=True, kw_only=True)
class GpuCode:
    """Code of this many bytes for a GPU: machine code, or PTX."""

    capability: tuple[int, int]
    size: int
    ptx: bool = False

    @property
    def data(self) -> bytes:
        """Bytes none of which is zero."""
        return (bytes(range(1, 252)) * (self.size // 251 + 1))[: self.size]


DATA = b"what stands behind the code for GPUs" * 10
_PAGE = 4096
_SYMBOL, _DYNAMIC = struct.Struct("<IBBHQQ"), struct.Struct("<QQ")
_HEADERS = 64 + 4 * 56


def gpu_library(*binaries: Sequence[GpuCode], machine: int = _X86_64) -> bytes:
    """A library that can be loaded, with fat binaries of this code. Its symbols are ``code`` and ``data``.

    The code is in its first segment; data and what the loader reads are in the second, at another address than in the
    file.
    """
    fat = b"".join(map(_fat_binary, binaries))
    code_at = -(-_HEADERS // 16) * 16
    second_at = -(-(code_at + len(fat)) // _PAGE) * _PAGE
    address = second_at + 2 * _PAGE
    names = b"\0code\0data\0"
    symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(1, 0x11, 0, 1, code_at, len(fat))
    symbols += _SYMBOL.pack(6, 0x11, 0, 2, address, len(DATA))
    table = struct.pack("<IIIIII", 1, 3, 1, 0, 2, 0)  # DT_HASH with one bucket: symbol 1, then 2
    symbols_at = len(DATA)
    names_at, table_at = symbols_at + len(symbols), symbols_at + len(symbols) + 16
    entries = ((4, address + table_at), (5, address + names_at), (6, address + symbols_at), (10, len(names)), (11, 24))
    dynamic_at = table_at + len(table)
    dynamic = b"".join(_DYNAMIC.pack(*entry) for entry in (*entries, (0, 0)))
    second = (DATA + symbols + names.ljust(16, b"\0") + table + dynamic).ljust(_PAGE, b"\0")
    section_names = b"\0.nv_fatbin\0.data\0.shstrtab\0"
    content = bytearray(second_at) + second + section_names
    content[code_at : code_at + len(fat)] = fat
    rows = [bytes(_SECTION.size), _SECTION.pack(1, 1, 2, code_at, code_at, len(fat), 0, 0, 8, 0)]
    rows.append(_SECTION.pack(12, 1, 3, address, second_at, len(DATA), 0, 0, 8, 0))
    rows.append(_SECTION.pack(18, 3, 0, 0, second_at + len(second), len(section_names), 0, 0, 1, 0))
    segments = (
        (1, 4, 0, 0, 0, code_at + len(fat), code_at + len(fat), _PAGE),
        (1, 6, second_at, address, address, len(second), len(second) + _BSS, _PAGE),
        (2, 6, second_at + dynamic_at, address + dynamic_at, address + dynamic_at, len(dynamic), len(dynamic), 8),
        (0x6474E551, 6, 0, 0, 0, 0, 0, 16),
    )
    content[:64] = _header(machine, len(segments), len(content), len(rows))
    content[64:_HEADERS] = b"".join(struct.pack("<IIQQQQQQ", *segment) for segment in segments)
    return bytes(content) + b"".join(rows)


def _fat_binary(codes: Sequence[GpuCode]) -> bytes:
    told = b"".join(
        struct.pack(
            "<HHIQ12xI32x",
            1 if code.ptx else 2,
            0x101,
            64,
            len(code.data),
            10 * code.capability[0] + code.capability[1],
        )
        + code.data
        for code in codes
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(told)) + told + bytes(-len(told) % 8)
