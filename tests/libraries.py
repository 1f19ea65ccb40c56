"""A small shared library as linkers write it, without a compiler."""

import struct

_SECTION = struct.Struct("<IIQQQQIIQQ")
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
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, len(content), 0, 64, 56, 1, 64, len(rows), len(rows) - 1)
    content[:64] = header
    return bytes(content) + b"".join(rows)


def _row(name: int, kind: int, is_loaded: bool, offset: int, size: int) -> bytes:
    return _SECTION.pack(name, kind, _LOADED * is_loaded, offset, offset, size, 0, 0, 1, 0)
