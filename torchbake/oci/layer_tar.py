"""The entries of a layer's tar archive, read once and strictly: damage and bombs are errors, and never the end.

`tarfile` alone takes a damaged header for the end of an archive, and reads a header of any size into memory.
"""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

_AT_ONCE = 2**20
_LARGEST_HEADER = 8 * 2**20  # bytes; a pax header holds a name, extended attributes, and the map of a sparse file


@dataclass(frozen=True, kw_only=True)
class LayerLimits:
    """The largest layer that is read: its bytes without compression, and its entries.

    The largest images with PyTorch have 60 GB and 300,000 files.
    """

    bytes: int = 256 * 2**30
    entries: int = 1_000_000


class LayerTar:
    """Iterates over the entries of a tar archive in a stream. Iterating raises one of UNREADABLE of `layer_stream`."""

    def __init__(self, stream: IO[bytes], limits: LayerLimits) -> None:
        self._stream, self._limits = _ForwardStream(stream), limits
        # Names that are not UTF-8 can be shown, compared and written as JSON with escapes.
        options: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "tarinfo": _StrictInfo}
        with self._header():
            self._archive: Any = tarfile.TarFile(fileobj=cast(IO[bytes], self._stream), **options)

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        entries = size = 0
        while info := self._next():
            entries, size = entries + 1, size + info.size
            if entries > self._limits.entries or size > self._limits.bytes:
                most = f"{self._limits.entries} entries and {self._limits.bytes} bytes"
                raise tarfile.ReadError(f"it has more than {most}, and no larger one is read")
            yield info

    def content(self, info: tarfile.TarInfo) -> Iterator[bytes]:
        """Yield the content of the last entry, a file, in pieces."""
        self._stream.most = None
        if info.issparse():
            file = cast(IO[bytes], self._archive.extractfile(info))
            while piece := file.read(_AT_ONCE):
                yield piece
            return
        left = info.size
        while left:
            piece = self._stream.read(min(left, _AT_ONCE))
            if not piece:
                raise tarfile.ReadError(f"it ends within {info.name}")
            left -= len(piece)
            yield piece

    def _next(self) -> tarfile.TarInfo | None:
        with self._header():
            info: tarfile.TarInfo | None = self._archive.next()
        self._archive.members.clear()  # which would hold every entry
        return info

    @contextmanager
    def _header(self) -> Iterator[None]:
        """Limit the bytes of a header, and raise ReadError for one that `tarfile` cannot read."""
        self._stream.most = _LARGEST_HEADER
        try:
            yield
        except (ValueError, LookupError, OverflowError) as error:  # the map of a sparse file, or a number in pax
            raise tarfile.ReadError(f"an entry's header is damaged: {error}") from None


class _StrictInfo(tarfile.TarInfo):
    """An entry whose damaged header is an error at any place of an archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_StrictInfo":
        try:
            return super().frombuf(buf, encoding, errors)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"an entry's header is damaged: {error}") from None


class _ForwardStream:
    """A stream with the position and the seeking forward that `tarfile` needs.

    At most ``most`` bytes can be read, and any number if it is None. Bytes that a seek skips do not count.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._position, self.most = stream, 0, cast("int | None", None)

    def read(self, size: int) -> bytes:
        if self.most is not None:
            self.most -= size
            if self.most < 0:
                raise tarfile.ReadError(f"an entry's header has more than {_LARGEST_HEADER} bytes")
        data = self._stream.read(size)
        while len(data) < size and (more := self._stream.read(size - len(data))):
            data += more
        self._position += len(data)
        return data

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        """Skip bytes. Raises StreamError for a position that has passed."""
        if position < self._position:
            raise tarfile.StreamError("an entry's content is before its header")
        while (left := position - self._position) and (data := self._stream.read(min(left, _AT_ONCE))):
            self._position += len(data)
