"""Bytes of GPU code in a library, by architecture: an estimate, as NVIDIA does not document the format.

nvcc writes code for several GPUs into a fat binary: a header, then pieces of code with a header each. A layer is a
stream and the table of an ELF file's sections is at its end, so fat binaries are found by their magic number. This
also finds code outside of the section .nv_fatbin: cuFFT 11.4.1 has 266 of its 291 MB there, which cuobjdump does not
list. For NCCL 2.32.3 and torchao 0.18.0 the numbers of pieces by architecture equal those of `cuobjdump -all` 13.5.37,
and uncompressed pieces are as long as the files that it extracts.

The magic number of fat binaries and their section: `fatbinary_section.h` of the CUDA toolkit. The fields of both
headers: https://github.com/n-eiling/cuda-fatbin-decompression
"""

import re
import struct
from collections import Counter
from collections.abc import Mapping
from typing import IO

_ELF = b"\x7fELF\x02\x01"  # 64 bits, little-endian: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html
_HEADER = struct.Struct("<7xB10xH28xI12x")  # OS ABI, machine, flags.
# A cubin is an ELF file of its own: EM_CUDA of https://sourceware.org/git/?p=binutils-gdb.git;f=include/elf/common.h.
# The place of the architecture in its flags is as in cubins that cuobjdump extracts, of CUDA 12 and 13.
_CUDA = 190
_SHIFTS = {51: 0, 65: 8}  # By the OS ABI.
_MAGIC = b"\x50\xed\x55\xba"
_BINARY = struct.Struct("<4sHHQ")  # Magic number, version, bytes of this header, bytes that follow.
_VERSION = 1
_CODE = struct.Struct("<H2xIQ12xI8xQ")  # Kind, bytes of this header, bytes of code, architecture, flags.
_KINDS = {1: "compute", 2: "sm", 8: "lto"}  # PTX, machine code, LTO-IR.
_ACCELERATED = 0x100000  # The flag of sm_90a, as cuobjdump shows such pieces of torchao 0.18.0.
_SMALLEST = 64  # Bytes of a header of code.
_CHUNK = 2**20


def gpu_code_of(file: IO[bytes], size: int) -> Mapping[str, int]:
    """Return the bytes of GPU code in an ELF file, as in ``{"sm_90": 1234, "compute_90": 56}``.

    The file is read forward from its begin, without ``seek``, and has ``size`` bytes. A fat binary whose headers
    disagree with each other is not counted. Return nothing for a file that is no ELF file of 64 bits.
    """
    reader = _ForwardReader(file)
    begin = reader.take(_HEADER.size)
    if not begin.startswith(_ELF) or len(begin) < _HEADER.size:
        return {}
    abi, machine, flags = _HEADER.unpack(begin)
    if machine == _CUDA and abi in _SHIFTS:
        return {f"sm_{flags >> _SHIFTS[abi] & 0xFF}": size}
    counts = Counter[str]()
    while reader.find(_MAGIC):
        header = reader.take(_BINARY.size)
        if len(header) < _BINARY.size:
            break
        _, version, length, rest = _BINARY.unpack(header)
        if (version, length) == (_VERSION, _BINARY.size) and reader.position + rest <= size:
            counts += _codes(reader, rest)
    return {name: counts[name] for name in sorted(counts, key=order_of)}


def order_of(architecture: str) -> tuple[str, int, str]:
    """Return a sort key: by kind, then by number, as in sm_90 before sm_100."""
    match = re.fullmatch(r"([a-z]+)_(\d+)(\w*)", architecture)
    return (match[1], int(match[2]), match[3]) if match else (architecture, 0, "")


def _codes(reader: "_ForwardReader", rest: int) -> Counter[str]:
    """Read the pieces of a fat binary of ``rest`` bytes; none if a header disagrees."""
    counts = Counter[str]()
    while rest:
        data = reader.take(min(rest, _CODE.size))
        if len(data) < _CODE.size:
            return Counter()
        kind, header, size, architecture, flags = _CODE.unpack(data)
        if header < _SMALLEST or header + size > rest:
            return Counter()
        reader.skip(header - _CODE.size + size)
        rest -= header + size
        if kind in _KINDS and size:
            suffix = "a" if flags & _ACCELERATED and kind != 8 else ""
            counts[f"{_KINDS[kind]}_{architecture}{suffix}"] += size
    return counts


class _ForwardReader:
    """A file that is read once, in chunks."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._data, self._at, self._before = file, b"", 0, 0

    @property
    def position(self) -> int:
        return self._before + self._at

    def take(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end of the file."""
        while len(self._data) - self._at < size and self._more(self._at):
            pass
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def skip(self, size: int) -> None:
        while size > len(self._data) - self._at:
            size -= len(self._data) - self._at
            self._at = len(self._data)
            if not self._more(self._at):
                return
        self._at += size

    def find(self, text: bytes) -> bool:
        """Move to the next place of these bytes, or to the end of the file."""
        while (place := self._data.find(text, self._at)) < 0:
            if not self._more(max(self._at, len(self._data) - len(text) + 1)):
                self._at = len(self._data)
                return False
        self._at = place
        return True

    def _more(self, begin: int) -> bool:
        """Read a chunk, and forget the bytes before ``begin``; false at the end of the file."""
        chunk = self._file.read(_CHUNK)
        self._data, self._at, self._before = self._data[begin:] + chunk, max(0, self._at - begin), self._before + begin
        return bool(chunk)
