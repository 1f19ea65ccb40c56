"""An image that buildah or podman handed out as a layout."""

import tarfile
from pathlib import Path
from typing import IO, cast

from torchbake.core.json_text import read_object
from torchbake.errors import BuildError
from torchbake.oci.manifest import Manifest
from torchbake.store.layout import Layout


def put_files(saved: Layout, folder: Path) -> None:
    """Write the files of an image into a folder: of each layer, the lowest first. Raises BuildError and OSError."""
    for blob in manifest_in(saved).layers:
        with tarfile.open(saved.path(blob.digest)) as archive:
            for info in archive:
                _write_file(archive, info, folder)


def manifest_in(saved: Layout) -> Manifest:
    """The manifest of the only image of a layout."""
    try:
        (entry,) = read_object((saved.folder / "index.json").read_bytes())["manifests"]
        manifest = saved.find(entry["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        manifest = None
    if manifest is None:
        raise BuildError("The program that built the image did not hand out all of it.", hint="Build it again.")
    return manifest


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
