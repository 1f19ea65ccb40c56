"""A program that writes a wheel's layer in one stream from the wheel's archive, without temporary files.

    python -m torchbake.build.wheel_stream JOB     # in an empty folder

`layers/wheels` decides which files the layer has, here and inside a build. Intel's ISA-L inflates them nearly twice as
fast as zlib. Checksums are not verified, because the digest of the archive was.
Source: APPNOTE.TXT, 4.3.7, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from isal import isal_zlib

from layers.wheels.contents import WheelError, WheelFile, WheelFiles, contents_of
from layers.wheels.tree import EPOCH
from layers.wheels.trim import read_trim
from torchbake.oci.layer_archive import Member, write_layer

_HEADER = 30  # bytes of a file's header before its name and its extra field
_CHUNK = 2**20
_PACKED = 2**18  # compressed bytes for one chunk; a larger rest would be copied


@dataclass(frozen=True, kw_only=True)
class WheelJob:
    """A wheel's file, and the folder of its files in the image, ``root``. Without ``rules`` nothing is trimmed.

    ``keep`` has the names of rules that do not apply.
    """

    wheel: str
    root: str
    threads: int
    rules: str
    modules: bool
    keep: tuple[str, ...] = ()


def main(job: WheelJob) -> None:
    """Write `layer.tar.zst`, and `headers.tar.zst` and `modules.tar.zst` if they have files. Print a `Packed` as JSON.

    Exit with a sentence if the wheel cannot be laid out.
    """
    try:
        with Path(job.wheel).open("rb") as file, zipfile.ZipFile(file) as wheel:
            rules = [rule for rule in read_trim(Path(job.rules) if job.rules else None) if rule.name not in job.keep]
            print(json.dumps(_write(file, contents_of(wheel, rules, partial(read_member, file)), job)))
    except (WheelError, zipfile.BadZipFile) as error:
        sys.exit(str(error))


def _write(wheel: IO[bytes], contents: WheelFiles, job: WheelJob) -> Mapping[str, Any]:
    """Write the layer, and return the fields of a `Packed` for JSON."""
    members = _members(wheel, contents.layer, job.root)
    layer = write_layer(Path("layer.tar.zst"), members, threads=job.threads)
    modules = {name: file for name, file in contents.layer.items() if job.modules and name.endswith(".py")}
    names = sorted(contents.layer, key=lambda name: name.split("/"))
    return {
        "layer": asdict(layer),
        "names": names,
        "headers": _aside(wheel, "headers", contents.headers, job),
        "modules": _aside(wheel, "modules", modules, job),
    }


def _aside(wheel: IO[bytes], name: str, files: Mapping[str, WheelFile], job: WheelJob) -> Mapping[str, Any] | None:
    """Write an archive of files below a folder, and return its blob; None without files."""
    if not files:
        return None
    return asdict(write_layer(Path(f"{name}.tar.zst"), _members(wheel, files, name), threads=job.threads).blob)


def _members(wheel: IO[bytes], files: Mapping[str, WheelFile], root: str) -> Iterator[Member]:
    """Yield entries in the order of their names, each after its folders, like the result of `normalise`."""
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."}
    yield _entry(root, tarfile.DIRTYPE, 0o755), None
    for name in sorted({*files, *folders}, key=lambda name: name.split("/")):
        if name in folders:
            yield _entry(f"{root}/{name}", tarfile.DIRTYPE, 0o755), None
        else:
            yield _file(wheel, f"{root}/{name}", files[name])


def _file(wheel: IO[bytes], name: str, file: WheelFile) -> Member:
    content, entry = file.content, _entry(name, tarfile.REGTYPE, file.mode, file.size)
    if isinstance(content, bytes):
        return entry, lambda: io.BytesIO(content)
    return entry, lambda: open_member(wheel, content)


def _entry(name: str, kind: bytes, mode: int, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.mtime = kind, mode, size, EPOCH
    return info


def open_member(archive: IO[bytes], info: zipfile.ZipInfo) -> IO[bytes]:
    """Open a stored or deflated file of an archive; only one can be open. It ends if the archive ends.

    A read may return fewer bytes than requested, also before the end.
    """
    archive.seek(info.header_offset)
    header = archive.read(_HEADER)
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    archive.seek(name + extra, io.SEEK_CUR)
    part = _FilePart(archive, info.compress_size)
    return cast(IO[bytes], part if info.compress_type == zipfile.ZIP_STORED else _InflateReader(part))


def read_member(archive: IO[bytes], info: zipfile.ZipInfo) -> bytes:
    """Read a whole file of an archive."""
    return b"".join(iter(open_member(archive, info).read, b""))


class _FilePart(io.RawIOBase):
    """The next ``size`` bytes of a file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = _CHUNK, /) -> bytes:
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data


class _InflateReader(io.RawIOBase):
    """The content of a raw deflate stream (RFC 1951)."""

    def __init__(self, packed: _FilePart) -> None:
        self._packed, self._inflater = packed, isal_zlib.decompressobj(-15)

    def read(self, size: int = _CHUNK, /) -> bytes:
        """Read bytes; none only at the end."""
        data = b""
        while not data and not self._inflater.eof:
            packed = self._inflater.unconsumed_tail or self._packed.read(_PACKED)
            data = self._inflater.decompress(packed, size)
            if not data and not packed:
                break
        return data


if __name__ == "__main__":
    main(WheelJob(**json.loads(sys.argv[1])))
