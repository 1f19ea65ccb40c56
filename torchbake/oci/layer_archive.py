"""A layer's archive, compressed and hashed in one stream as it is written."""

import contextlib
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias, cast

import zstandard

from torchbake.core.digest import DigestWriter
from torchbake.errors import BuildError
from torchbake.oci.layer_order import Layer
from torchbake.oci.layer_stream import UNREADABLE
from torchbake.oci.manifest import Blob
from torchbake.oci.tar_member import member, open_member
from torchbake.ui.command import Command

# zstd's level 2 with a table of level 3's size and shorter matches. CUDA's libraries get as small as with level 3 in a
# quarter less time; CPU libraries get 3% larger. It finds repetitions in the last 64 MB, in place of 2 MB: a CUDA
# library has nearly the same kernels for many GPUs. A decoder needs memory for one window, and all decoders allow at
# least 128 MB (`zstd -d`'s own limit, https://github.com/facebook/zstd/blob/dev/programs/zstd.1.md).
#
# A frame ends when its window is full. Decoders keep little more than a window, and containerd's decoder moves all of
# it for each further megabyte: without another frame it would take five times as long.
# Measured: docs/internals/performance.md.
_LEVEL = 2
_TABLE = 17  # the power of two
_MATCH = 5  # bytes, for a match nearby
_WINDOW = 26  # the power of two
_FRAME = 2**_WINDOW
_FAR_MATCH = 16  # bytes, for a match in the whole window
_FAR_BUCKET = 3  # the power of two, of positions for each hash
_PIECE = 2**24  # bytes for one thread
_AT_ONCE = 2**20  # bytes
_OVERLAP = 3  # zstd's unit: 1 MB, for the far search.
# An entry of an archive, and a function that opens its content if it is a file.
Member: TypeAlias = tuple[tarfile.TarInfo, Callable[[], IO[bytes]] | None]
MEDIA_TYPE = "application/vnd.oci.image.layer.v1.tar+zstd"


def write_layer(target: Path, members: Iterable[Member], *, threads: int) -> Layer:
    """Write an archive of these entries, compressed by ``threads`` other threads.

    -1 uses all cores. Every number except 0 writes the same archive. With 0 the calling thread compresses, and the
    archive differs.
    """
    return _write_compressed(target, lambda archive: write_archive(archive, members), threads)


def compress_layer(target: Path, archive: IO[bytes], *, threads: int) -> Layer:
    """Write an archive that exists already, compressed by ``threads`` as in `write_layer`."""
    return _write_compressed(target, lambda text: shutil.copyfileobj(archive, text, _AT_ONCE), threads)


def _write_compressed(target: Path, write: Callable[[DigestWriter], None], threads: int) -> Layer:
    with target.open("wb") as file:
        compressed = DigestWriter(file)
        with _compressor(threads).stream_writer(cast(IO[bytes], compressed), closefd=False) as compressor:
            archive = DigestWriter(_Frames(compressor))
            write(archive)
    blob = Blob(digest=compressed.digest, size=compressed.size, media_type=MEDIA_TYPE)
    return Layer(blob=blob, diff_id=archive.digest)


class _Frames:
    """A file for a compressor's input that starts another frame whenever a window is full."""

    def __init__(self, compressor: zstandard.ZstdCompressionWriter) -> None:
        self._compressor, self._left = compressor, _FRAME

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            piece, rest = rest[: self._left], rest[self._left :]
            self._compressor.write(piece)
            self._left -= len(piece)
            if not self._left:
                self._compressor.flush(zstandard.FLUSH_FRAME)
                self._left = _FRAME


def _compressor(threads: int) -> zstandard.ZstdCompressor:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, threads=threads, hash_log=_TABLE, min_match=_MATCH, window_log=_WINDOW,
        enable_ldm=True, ldm_min_match=_FAR_MATCH, ldm_bucket_size_log=_FAR_BUCKET, job_size=_PIECE,
        overlap_log=_OVERLAP,
    )  # fmt: skip
    return zstandard.ZstdCompressor(compression_params=parameters)


def write_archive(archive: DigestWriter, members: Iterable[Member]) -> None:
    """Write the entries of an archive and its end."""
    for info, opened in members:
        with opened() if opened else contextlib.nullcontext() as file:
            for piece in member(info, file, tarfile.PAX_FORMAT):
                archive.write(piece)
    archive.write(bytes(2 * tarfile.BLOCKSIZE))
    archive.write(bytes(-archive.size % tarfile.RECORDSIZE))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive of files and folders below ``folder``.

    Raises BuildError if the archive is damaged, or has a link, a device or a name that is not below ``folder``.
    """
    unpacker = zstandard.ZstdDecompressor(max_window_size=2**_WINDOW)
    try:
        with (
            archive.open("rb") as file,
            unpacker.stream_reader(file, read_across_frames=True) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            _extract(tar, folder)
    except UNREADABLE as error:
        raise BuildError(
            f"{archive} is damaged: {error}.", hint=f"Make it again: {Command('clean')}, then build."
        ) from None


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Write every entry of an archive. Raises ExtractError unless each is a file or a folder below ``folder``.

    Debian 12's Python 3.11.2 has no `filter=` in `extractall` (added in 3.11.4), and without it nothing is checked.
    """
    folders = []
    for info in tar:
        name = PurePosixPath(info.name)
        if name.is_absolute() or ".." in name.parts or not (info.isreg() or info.isdir()):
            raise tarfile.ExtractError(f"{info.name} is not a file or a folder below its root")
        path = folder / name
        if info.isdir():
            path.mkdir(parents=True, exist_ok=True)
            folders.append((path, info))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_member(tar, info) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
        _finish(path, info)
    for path, info in folders:  # last, since every new file changes the time of its folder
        _finish(path, info)


def _finish(path: Path, info: tarfile.TarInfo) -> None:
    """Give a written file or folder the mode and the time of its entry."""
    path.chmod(info.mode)
    os.utime(path, (info.mtime, info.mtime))


def tree_members(tree: Path, root: str) -> Iterator[Member]:
    """The files of a folder in the order of their names, below a folder ``root``. Two names of a file are two files."""
    for path in (tree, *sorted(tree.rglob("*"))):
        info, status = tarfile.TarInfo(root + str(path)[len(str(tree)) :]), path.lstat()
        info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
        if stat.S_ISREG(status.st_mode):
            info.size = status.st_size
            yield info, lambda path=path: path.open("rb")  # type: ignore[misc]
            continue
        info.type = tarfile.DIRTYPE if stat.S_ISDIR(status.st_mode) else tarfile.SYMTYPE
        info.linkname = str(path.readlink()) if info.type == tarfile.SYMTYPE else ""
        yield info, None
