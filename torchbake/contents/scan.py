"""The files of one layer, and the packages that they name, read in one pass."""

import hashlib
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any, NamedTuple, TypeAlias, cast

from torchbake.contents.model import FileKind
from torchbake.contents.package_files import NamedPackage, list_reader, packages_reader
from torchbake.core.digest import short_digest
from torchbake.engine.export import ChunkReader
from torchbake.errors import EngineError
from torchbake.oci.layer_stream import UNREADABLE, DigestReader, uncompressed
from torchbake.oci.layer_tar import LayerLimits, LayerTar
from torchbake.oci.tree import ROOT, clean_path, is_whiteout

# Returns the bytes of GPU code by architecture, of an ELF file that can be read once, and of its size in bytes.
ReadGpuCode: TypeAlias = Callable[[IO[bytes], int], Mapping[str, int]]

_ELF = b"\x7fELF"
_LONGEST_TEXT = 64 * 2**20  # bytes of a list of files; that of torch has 2 MB
_KINDS: Mapping[bytes, FileKind] = {
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "device",
}


class ScannedFile(NamedTuple):
    """An entry of one layer, with the fields of `LayerFile`. It is a tuple, as images have 100,000 of them."""

    path: str
    kind: FileKind
    size: int
    mode: int
    uid: int
    gid: int
    content: str
    gpu_code: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class LayerContents:
    """Everything that is known of a layer.

    ``digest`` and ``stored`` are the digest and the number of its bytes as they were read, perhaps ``compressed``.

    ``files`` are sorted by path, without the root. ``whiteouts`` are paths too.

    ``packages`` and ``lists`` are by path: the packages that a file names, and the names in a package's list of files.
    """

    digest: str
    stored: int
    compressed: bool
    files: tuple[ScannedFile, ...] = ()
    whiteouts: tuple[str, ...] = ()
    packages: Mapping[str, tuple[NamedPackage, ...]] = field(default_factory=dict)
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LayerScanner:
    """Reads layers. ``gpu_code`` reads the GPU code of ELF files; without it no file has any."""

    gpu_code: ReadGpuCode | None = None
    limits: LayerLimits = field(default_factory=LayerLimits)

    def scan(self, file: IO[bytes], digest: str = "") -> LayerContents:
        """Read a layer: a tar archive, possibly compressed. If ``digest`` is given, the layer must have it.

        Raises EngineError if the layer cannot be read, is too large, or has another digest.
        """
        source = DigestReader(file)
        try:
            with uncompressed(cast(IO[bytes], source), source.begin) as stream:
                compressed = stream is not cast(Any, source)
                matches = self._read(LayerTar(stream, self.limits))
        except (*UNREADABLE, ValueError, OverflowError) as error:
            name = f"The layer {short_digest(digest)}" if digest else "A layer"
            raise EngineError(f"{name} cannot be read: {error}.", hint="Pull, build or save the image again.") from None
        actual = source.digest()
        if digest not in ("", actual):
            raise EngineError(
                f"The layer {digest} is damaged: its bytes have the digest {actual}.",
                hint="Pull, build or save the image again.",
            )
        return LayerContents(digest=actual, stored=source.size, compressed=compressed, **matches)

    def _read(self, archive: LayerTar) -> dict[str, Any]:
        files = dict[str, ScannedFile]()
        whiteouts = set[str]()
        packages = dict[str, tuple[NamedPackage, ...]]()
        lists = dict[str, tuple[str, ...]]()
        for info in archive:
            path = clean_path(info.name)
            if path == ROOT:
                continue
            if is_whiteout(path):
                whiteouts.add(path)
                continue
            packages.pop(path, None)  # of two entries with one path, the last one counts
            lists.pop(path, None)
            pieces = archive.content(info) if info.isreg() else iter(())
            if info.isreg() and (read_packages := packages_reader(path)):
                text, pieces = _text(info, pieces)
                packages[path] = read_packages(text)
            elif info.isreg() and (read_list := list_reader(path)):
                text, pieces = _text(info, pieces)
                lists[path] = read_list(text)
            files[path] = self._file(info, path, pieces)
        return {
            "files": tuple(sorted(files.values())), "whiteouts": tuple(sorted(whiteouts)), "packages": packages,
            "lists": lists,
        }  # fmt: skip

    def _file(self, info: tarfile.TarInfo, path: str, pieces: Iterator[bytes]) -> ScannedFile:
        mode, content, gpu_code = info.mode & 0o7777, "", dict[str, int]()
        if info.isreg():
            content, gpu_code = self._hash(pieces, info.size)
        elif info.issym():
            mode, content = 0o777, info.linkname
        elif info.islnk():
            content = clean_path(info.linkname)
        elif info.isdev():
            content = f"{info.devmajor}:{info.devminor}"
        size = info.size if info.isreg() else 0
        return ScannedFile(path, _KINDS.get(info.type, "file"), size, mode, info.uid, info.gid, content, gpu_code)

    def _hash(self, pieces: Iterator[bytes], size: int) -> tuple[str, dict[str, int]]:
        """Return the SHA-256 of a file's content, and the GPU code in it."""
        total = hashlib.sha256()

        def read() -> Iterator[bytes]:
            for piece in pieces:
                total.update(piece)
                yield piece

        content, code = read(), dict[str, int]()
        first = next(content, b"")
        if self.gpu_code and first.startswith(_ELF):
            file: Any = ChunkReader(chain((first,), content))
            code = dict(self.gpu_code(file, size))
        for _ in content:
            pass
        return total.hexdigest(), code


def _text(info: tarfile.TarInfo, pieces: Iterator[bytes]) -> tuple[str, Iterator[bytes]]:
    """Return the text of a file, and its pieces again."""
    if info.size > _LONGEST_TEXT:
        raise tarfile.ReadError(f"/{info.name} has {info.size} bytes, too many for a list of files")
    data = b"".join(pieces)
    return data.decode(errors="replace"), iter((data,))
