"""Compressions of layers."""

from typing import Literal, TypeAlias, get_args

Compression: TypeAlias = Literal["zstd", "gzip"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
