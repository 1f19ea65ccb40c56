"""What one layer of an image tells of packages: read in one pass, and small enough to be remembered.

Layers and whiteouts: https://github.com/opencontainers/image-spec/blob/v1.1.0/layer.md
"""

import hashlib
import posixpath
import re
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Annotated, Any, Literal, cast

import packaging
from pydantic import BaseModel, ConfigDict, Field

from torchbake.errors import EngineError
from torchbake.oci import layer_stream
from torchbake.oci.layer_stream import LOOK, UNREADABLE, uncompressed
from torchbake.sbom import package_metadata, spdx
from torchbake.sbom.package_metadata import (
    Copyright,
    Debs,
    System,
    Wheel,
    read_copyright,
    read_debs,
    read_system,
    read_wheel,
)

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_LARGEST = 64 * 2**20  # bytes of a file that is read; dpkg's status of a whole desktop has 5 MB
_AT_ONCE = 2**20
_DOC = re.compile(r"usr/share/doc/[^/]+")
_UNREADABLE = (*UNREADABLE, ValueError)


class Link(BaseModel):
    """A link of either kind at a place that tells of packages; ``target`` is a path from the image's root."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["link"] = "link"
    target: str


Found = Annotated[Wheel | Debs | Copyright | System | Link, Field(discriminator="kind")]


class Findings(BaseModel):
    """A layer. Paths have no leading slash.

    ``found`` is what its files tell, by path. The others say what it hides of the layers below: ``gone`` are its
    whiteouts, ``opaque`` the folders that begin anew, ``leaves`` all that is not a folder (each takes the place of what
    had its name, also of a folder), and ``folders`` those where below a file of that name may tell something.
    ``reader`` is READER of the toolkit that read the layer: another one may have read something else.
    """

    model_config = ConfigDict(frozen=True)

    reader: str
    found: Mapping[str, Found] = Field(default_factory=dict)
    gone: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def _own_digest() -> str:
    """Of all that decides what is read out of a layer, so that no number has to be raised by hand."""
    modules = (sys.modules[__name__], package_metadata, layer_stream, spdx)
    own = [Path(module.__file__ or "").read_bytes() for module in modules]
    return hashlib.sha256(b"\0".join([packaging.__version__.encode(), *own])).hexdigest()[:16]


READER = _own_digest()


def read_layer(file: IO[bytes], digest: str) -> Findings:
    """Read a layer (tar, alone or compressed by gzip or zstd; its first bytes tell).

    Raises EngineError for what is not a layer or not what ``digest`` says, and OSError where the file cannot be read.
    """
    source = _Hashed(file)
    try:
        with uncompressed(cast(IO[bytes], source), source.begin) as stream:
            findings = _read(stream)
    except _UNREADABLE as error:
        raise EngineError(f"The layer {digest} cannot be read: {error}", hint="Build the image again.") from None
    if source.digest() != digest:
        raise EngineError(f"The layer {digest} is damaged.", hint="Build the image again.")
    return findings


class _Hashed:
    """A file that hashes what is read of it: a compressed stream that was cut off need not look so."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.sha256()
        self.begin = self._ahead = self._next(LOOK)

    def read(self, size: int = -1) -> bytes:
        if not self._ahead:
            return self._next(size)
        end = len(self._ahead) if size < 0 else size
        ahead, self._ahead = self._ahead[:end], self._ahead[end:]
        return ahead

    def digest(self) -> str:
        """Of the whole file; reads what is left of it."""
        while self._next(_AT_ONCE):
            pass
        return f"sha256:{self._hash.hexdigest()}"

    def _next(self, size: int) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data


def _read(stream: IO[bytes]) -> Findings:
    files: dict[str, Found] = {}
    gone, opaque, leaves, folders = set[str](), set[str](), set[str](), set[str]()
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_AT_ONCE, encoding="utf-8", errors="replace") as archive:
        for member in archive:
            path = _clean(member.name)
            parent, name = posixpath.split(path)
            if name == _OPAQUE:
                opaque.add(parent)
            elif name.startswith(_WHITEOUT):
                gone.add(posixpath.join(parent, name.removeprefix(_WHITEOUT)))
            elif member.isdir():
                _forget(path, files, leaves)
                if _tells(path):
                    folders.add(path)
            else:
                leaves.add(path)
                _note(archive, member, path, files)
    return Findings(
        reader=READER,
        found=dict(sorted(files.items())),
        gone=tuple(sorted(gone)),
        opaque=tuple(sorted(opaque)),
        leaves=tuple(sorted(leaves)),
        folders=tuple(sorted(folders)),
    )


def _forget(path: str, files: dict[str, Found], leaves: set[str]) -> None:
    """The last entry of a path is the one that counts."""
    files.pop(path, None)
    leaves.discard(path)


def _note(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, files: dict[str, Found]) -> None:
    files.pop(path, None)
    if not _tells(path):
        return
    if member.issym():
        files[path] = Link(target=_clean(posixpath.join("/", posixpath.dirname(path), member.linkname)))
    elif member.islnk():
        files[path] = Link(target=_clean(member.linkname))
    elif member.isfile() and (reader := _reader(path)):
        if member.size > _LARGEST:
            raise tarfile.TarError(f"/{path} has {member.size} bytes")
        source: Any = archive.extractfile(member)
        files[path] = reader(source.read().decode(errors="replace"))


def _tells(path: str) -> bool:
    """Whether something at this path can tell of packages."""
    return _reader(path) is not None or _DOC.fullmatch(path) is not None


def _reader(path: str) -> Callable[[str], Found] | None:
    parent, name = posixpath.split(path)
    if name == "METADATA" and parent.endswith(".dist-info"):
        return lambda text: read_wheel(text, posixpath.basename(parent))
    if path == "var/lib/dpkg/status" or (parent == "var/lib/dpkg/status.d" and not name.endswith(".md5sums")):
        return read_debs
    if name == "copyright" and _DOC.fullmatch(parent):
        return read_copyright
    if path in ("etc/os-release", "usr/lib/os-release"):
        return read_system
    return None


def _clean(name: str) -> str:
    return posixpath.normpath(f"/{name}").lstrip("/")
