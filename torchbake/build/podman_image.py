"""Write an image that buildah or podman built into a layout, in the form in which BuildKit exports images.

Versions of them write different headers into layers, and describe an image in different words. So each layer is
written again with the same files in the same order, and compressed. A layer of the base stays as it is.
"""

import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from torchbake.core.json_text import read_object
from torchbake.errors import BuildError
from torchbake.oci.layer_archive import Member, write_layer
from torchbake.oci.layer_order import Layer, json_bytes, manifest_of
from torchbake.oci.manifest import Blob, Manifest
from torchbake.store.docker_archive import known_layers, link_layer
from torchbake.store.layout import Layout

_XATTR = "SCHILY.xattr."


def put_image(
    saved: Layout, layout: Layout, *, bases: Sequence[Layout], steps: Sequence[str], created: str
) -> Manifest:
    """Write the image of a layout into another one, and return its manifest. Raises BuildError and OSError.

    ``saved`` has one image, whose layers are not compressed. ``bases`` are layouts of its possible base
    images. ``steps`` are the last ones of its history, in the words of BuildKit: a report names layers by them.
    ``created`` is the time of the image and of its history, as RFC 3339.
    """
    layout.blobs.mkdir(parents=True, exist_ok=True)
    known = known_layers(bases)
    packed = _manifest(saved)
    config = read_object(saved.path(packed.config.digest).read_bytes())
    layers = [
        link_layer(known, diff_id, layout) if diff_id in known else _written(layout, saved, blob)
        for diff_id, blob in zip(config["rootfs"]["diff_ids"], packed.layers, strict=True)
    ]
    data = json_bytes(_restated(config, layers, steps, created))
    manifest = manifest_of(data, layers)
    layout.write(manifest, data)
    return manifest


def put_files(saved: Layout, folder: Path) -> None:
    """Write the files of an image into a folder: of each layer, the lowest first. Raises BuildError and OSError."""
    for blob in _manifest(saved).layers:
        with tarfile.open(saved.path(blob.digest)) as archive:
            for info in archive:
                _write_file(archive, info, folder)


def _manifest(saved: Layout) -> Manifest:
    """The manifest of the only image of a layout."""
    try:
        (entry,) = read_object((saved.folder / "index.json").read_bytes())["manifests"]
        manifest = saved.find(entry["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        manifest = None
    if manifest is None:
        raise BuildError("The program that built the image did not hand out all of it.", hint="Build it again.")
    return manifest


def _written(layout: Layout, saved: Layout, blob: Blob) -> Layer:
    part = layout.blobs / "layer.part"
    with tarfile.open(saved.path(blob.digest)) as archive:
        layer = write_layer(part, _members(archive), threads=-1)
    part.replace(layout.path(layer.blob.digest))
    return layer


def _members(archive: tarfile.TarFile) -> Iterator[Member]:
    for info in archive:
        info.uname = info.gname = ""
        info.mtime = int(info.mtime)
        info.pax_headers = {name: value for name, value in info.pax_headers.items() if name.startswith(_XATTR)}
        yield info, (lambda info=info: archive.extractfile(info)) if info.isreg() else None  # type: ignore[misc]


def _restated(config: Mapping[str, Any], layers: Iterable[Layer], steps: Sequence[str], created: str) -> dict[str, Any]:
    """A config without words of podman's own."""
    told = config.get("history") or []
    if len(told) < len(steps):
        raise BuildError(f"The build made {len(told)} steps of {len(steps)}, so nobody can tell its layers apart.")
    commands = [*(str(step.get("created_by", "")).strip() for step in told[: len(told) - len(steps)]), *steps]
    settings = dict(config.get("config") or {})
    labels = {name: value for name, value in (settings.get("Labels") or {}).items() if name != "io.buildah.version"}
    history = [
        {
            "created": created,
            "created_by": command,
            **({"empty_layer": True} if step.get("empty_layer") else {}),
        }
        for step, command in zip(told, commands, strict=True)
    ]
    return {
        "created": created,
        "architecture": config["architecture"],
        "os": config["os"],
        "config": {**settings, **({"Labels": labels} if labels else {})},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": history,
    }


def _write_file(archive: tarfile.TarFile, info: tarfile.TarInfo, folder: Path) -> None:
    path = folder / info.name
    if not path.resolve().is_relative_to(folder.resolve()) or not (info.isreg() or info.isdir()):
        raise BuildError(f"The build handed out {info.name}, which is not a file or a folder below its root.")
    if info.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cast(IO[bytes], archive.extractfile(info)).read())
    path.chmod(info.mode & 0o7777)
