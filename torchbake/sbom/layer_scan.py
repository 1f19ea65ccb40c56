"""Package metadata in one layer of an image, read in one pass, and small enough for a cache.

Layers and whiteouts: https://github.com/opencontainers/image-spec/blob/v1.1.0/layer.md
"""

import posixpath
import re
import sys
import tarfile
from collections.abc import Callable, Mapping
from typing import IO, Annotated, Literal, cast

import packaging
from pydantic import Field

from torchbake.core.digest import code_digest
from torchbake.errors import EngineError
from torchbake.oci import layer_stream, layer_tar, tree
from torchbake.oci.layer_stream import UNREADABLE, DigestReader, uncompressed
from torchbake.oci.layer_tar import LayerLimits, LayerTar
from torchbake.oci.tree import clean_path, is_whiteout
from torchbake.sbom import package_metadata, spdx
from torchbake.sbom.package_metadata import Copyright, Debs, System, Wheel

_LARGEST = 64 * 2**20  # bytes of a file that is read; dpkg's status of a whole desktop has 5 MB
_DOC = re.compile(r"usr/share/doc/[^/]+")
_UNREADABLE = (*UNREADABLE, ValueError, OverflowError)


class Link(package_metadata.MetadataModel):
    """A hard or symbolic link in place of package metadata; ``target`` is a path from the image's root."""

    kind: Literal["link"] = "link"
    target: str


ScannedItem = Annotated[Wheel | Debs | Copyright | System | Link, Field(discriminator="kind")]


class Findings(package_metadata.MetadataModel):
    """The metadata in a layer by path, and the entries that hide paths of lower layers. Paths have no leading slash.

    All entries except folders are ``leaves``, which replace a file or a folder. Of all folders, only those in
    ``folders`` can replace metadata. The ``reader`` identifies the version of the code that read the layer.
    """

    reader: str
    found: Mapping[str, ScannedItem] = Field(default_factory=dict)
    whiteouts: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


# The digest of the code that reads layers, in place of a version number that must be raised by hand.
_MODULES = (sys.modules[__name__], package_metadata, layer_stream, layer_tar, tree, spdx)
READER = code_digest(_MODULES, packaging.__version__)


def read_layer(file: IO[bytes], digest: str) -> Findings:
    """Read a layer: a tar archive, possibly compressed by gzip or zstd.

    Raise EngineError if it is not a layer, or if its digest differs, and OSError if the file cannot be read.
    """
    source = DigestReader(file)
    try:
        with uncompressed(cast(IO[bytes], source), source.begin) as stream:
            findings = _read(LayerTar(stream, LayerLimits()))
    except _UNREADABLE as error:
        raise EngineError(f"The layer {digest} cannot be read: {error}", hint="Build the image again.") from None
    if source.digest() != digest:
        raise EngineError(f"The layer {digest} is damaged.", hint="Build the image again.")
    return findings


def _read(archive: LayerTar) -> Findings:
    files: dict[str, ScannedItem] = {}
    whiteouts, leaves, folders = set[str](), set[str](), set[str]()
    for member in archive:
        path = clean_path(member.name)
        if is_whiteout(path):
            whiteouts.add(path)
            continue
        files.pop(path, None)  # of two entries with one path, the last one counts
        if member.isdir():
            leaves.discard(path)
            if _is_metadata(path):
                folders.add(path)
            continue
        leaves.add(path)
        if _is_metadata(path) and (value := _read_member(archive, member, path)):
            files[path] = value
    return Findings(
        reader=READER, found=dict(sorted(files.items())), whiteouts=tuple(sorted(whiteouts)),
        leaves=tuple(sorted(leaves)), folders=tuple(sorted(folders)),
    )  # fmt: skip


def _read_member(archive: LayerTar, member: tarfile.TarInfo, path: str) -> ScannedItem | None:
    if member.issym():
        return Link(target=clean_path(posixpath.join("/", posixpath.dirname(path), member.linkname)))
    if member.islnk():
        return Link(target=clean_path(member.linkname))
    reader = _reader(path)
    if not member.isfile() or not reader:
        return None
    if member.size > _LARGEST:
        raise tarfile.TarError(f"/{path} has {member.size} bytes")
    return reader(b"".join(archive.content(member)).decode(errors="replace"))


def _is_metadata(path: str) -> bool:
    """Check if a path can be, or contain, metadata of packages."""
    return _reader(path) is not None or _DOC.fullmatch(path) is not None


def _reader(path: str) -> Callable[[str], ScannedItem] | None:
    parent, name = posixpath.split(path)
    if name == "METADATA" and parent.endswith(".dist-info"):
        return lambda text: package_metadata.read_wheel(text, posixpath.basename(parent))
    if path == "var/lib/dpkg/status" or (parent == "var/lib/dpkg/status.d" and not name.endswith(".md5sums")):
        return package_metadata.read_debs
    if name == "copyright" and _DOC.fullmatch(parent):
        return package_metadata.read_copyright
    return package_metadata.read_system if path in ("etc/os-release", "usr/lib/os-release") else None
