"""Convert an archive of `docker save` into an image of a layout, its layers compressed by zstd or not at all.

Docker's classic image store saves layers uncompressed, in two forms. Docker 25 and later write an OCI image layout: a
layer is ``blobs/sha256/DIFF_ID``. Earlier ones write ``ID/layer.tar``, and a link where two layers are equal. Both have
a ``manifest.json``, which names the config and the layers.
Source: https://github.com/moby/moby/blob/v26.1.5/image/tarexport/save.go
"""

import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from torchbake.core.digest import DigestWriter
from torchbake.core.files import linked
from torchbake.core.json_text import read_json
from torchbake.errors import BuildError
from torchbake.oci.layer_archive import compress_layer
from torchbake.oci.layer_order import Layer, manifest_of
from torchbake.oci.layer_stream import UNREADABLE
from torchbake.oci.manifest import Blob, Manifest
from torchbake.oci.tar_member import open_member
from torchbake.store.layout import Layout

_BLOB = "blobs/sha256/"
_LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE)
_SMALL = 4 * 2**20  # bytes; manifests and configs are smaller
_AT_ONCE = 2**20  # bytes
_PLAIN = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, kw_only=True)
class _ArchiveContent:
    """The content of an archive: small files, layers and links, by their names."""

    texts: dict[str, bytes] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


def known_layers(layouts: Sequence[Layout]) -> dict[str, tuple[Blob, Path]]:
    """Return the layers of these layouts with their files, by their diff IDs."""
    return {
        diff_id: (blob, layout.path(blob.digest)) for layout in layouts for diff_id, blob in layout.layers().items()
    }


def link_layer(layers: Mapping[str, tuple[Blob, Path]], diff_id: str, layout: Layout) -> Layer:
    """Put a layer of ``layers`` into a layout."""
    blob, path = layers[diff_id]
    linked(path, layout.path(blob.digest))
    return Layer(blob=blob, diff_id=diff_id)


@dataclass(frozen=True, kw_only=True)
class SavedArchive:
    """An archive of one image that `docker save` writes, to be read once. ``diff_ids`` are those of its layers.

    ``layers`` are layers that are packed already, with their files. The others are compressed by ``threads`` as in
    `write_layer`; with None they stay as they are.
    """

    file: IO[bytes]
    diff_ids: Sequence[str]
    layers: Mapping[str, tuple[Blob, Path]]
    threads: int | None

    def write(self, layout: Layout) -> Manifest:
        """Write the image into a layout, and return its manifest.

        Raises BuildError if the archive is cut off or holds another image.
        """
        layout.blobs.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(prefix=".saved-", dir=layout.folder) as scratch:
                value = self._read(layout, Path(scratch, "layer"))
            config, layers = _resolve(value)
        except (*UNREADABLE, ValueError, LookupError, TypeError, AttributeError) as error:
            raise BuildError(f"`docker save` wrote an incomplete image: {error}.", hint="Build it again.") from None
        if [layer.diff_id for layer in layers] != list(self.diff_ids):
            raise BuildError("`docker save` wrote layers that the image does not have.", hint="Build it again.")
        manifest = manifest_of(config, layers)
        layout.write(manifest, config)
        return manifest

    def _read(self, layout: Layout, scratch: Path) -> _ArchiveContent:
        value = _ArchiveContent()
        with tarfile.open(fileobj=self.file, mode="r|") as archive:
            for member in archive:
                diff_id = f"sha256:{member.name.removeprefix(_BLOB)}"
                if member.type in _LINKS:
                    value.links[member.name] = _target(member)
                elif not member.isfile():
                    continue
                elif diff_id in self.diff_ids and diff_id in self.layers:
                    value.layers[member.name] = link_layer(self.layers, diff_id, layout)
                elif diff_id in self.diff_ids or PurePosixPath(member.name).name == "layer.tar":
                    value.layers[member.name] = self._pack(open_member(archive, member), layout, scratch)
                elif member.size <= _SMALL:
                    value.texts[member.name] = open_member(archive, member).read()
        return value

    def _pack(self, content: IO[bytes], layout: Layout, scratch: Path) -> Layer:
        if self.threads is None:
            layer = _copy(scratch, content)
        else:
            layer = compress_layer(scratch, content, threads=self.threads)
        if layer.diff_id in self.layers:  # names in older archives are no digests
            return link_layer(self.layers, layer.diff_id, layout)
        scratch.replace(layout.path(layer.blob.digest))
        return layer


def _copy(target: Path, archive: IO[bytes]) -> Layer:
    with target.open("wb") as file:
        copy = DigestWriter(file)
        shutil.copyfileobj(archive, copy, _AT_ONCE)
    return Layer(blob=Blob(digest=copy.digest, size=copy.size, media_type=_PLAIN), diff_id=copy.digest)


def _target(member: tarfile.TarInfo) -> str:
    """Return the name of the member that a link points to."""
    if member.type == tarfile.LNKTYPE:
        return member.linkname
    parts: list[str] = []
    for part in (PurePosixPath(member.name).parent / member.linkname).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def _resolve(content: _ArchiveContent) -> tuple[bytes, Sequence[Layer]]:
    """Return the config and the layers that ``manifest.json`` names. Raises ValueError, LookupError or TypeError."""
    (described,) = cast(list[dict[str, Any]], read_json(content.texts["manifest.json"]))
    config = content.texts[described["Config"]]
    names: Iterator[str] = (content.links.get(name, name) for name in described["Layers"])
    return config, [content.layers[name] for name in names]
