"""Libraries without code that none of an image's GPUs runs.

That programs do not notice where it is zeros, of 300 libraries in four frameworks: "The Hidden Bloat in Machine
Learning Systems", https://arxiv.org/abs/2503.14226.
"""

import struct
from collections.abc import Sequence

from .gpu_code import Gpu, codes
from .holes import with_holes

_MACHINE_AT, _X86_64 = 18, b"\x3e\x00"


def pruned(library: bytes, gpus: Sequence[Gpu]) -> bytes:
    """A library for x86-64 with the code that one of these GPUs runs; what is none is given back as it is."""
    if library[_MACHINE_AT : _MACHINE_AT + 2] != _X86_64:
        return library
    try:
        there = (code for code in codes(library) if not code.is_gone)
        unread = [(code.start, code.end) for code in there if not any(gpu.runs(code) for gpu in gpus)]
        return with_holes(library, unread) if unread else library
    except (struct.error, LookupError, ValueError):  # a file that is cut off, or says what cannot be
        return library
