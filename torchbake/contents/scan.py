"""The files of one layer, and the texts that name packages, read in one pass."""

from collections.abc import Callable, Mapping
from typing import IO, TypeAlias

# Returns the bytes of GPU code by architecture, of an ELF file that can be read at any place, and of its size in bytes.
ReadGpuCode: TypeAlias = Callable[[IO[bytes], int], Mapping[str, int]]
