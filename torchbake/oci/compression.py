"""How layers may be compressed."""

from typing import Literal, TypeAlias, get_args

Compression: TypeAlias = Literal["zstd", "gzip"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
