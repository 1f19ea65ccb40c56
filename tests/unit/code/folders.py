"""Folders of code, and images of a few layers in a registry in memory."""

import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.unit.registries import MemoryRegistry, Store
from torchbake.code.layer import CodeLayer, LayerCompression, code_layer
from torchbake.oci.layer_order import Layer, image_of, json_bytes
from torchbake.oci.manifest import CONFIG, DOCKER, Blob, Manifest, sha256
from torchbake.oci.reference import Reference

GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
FILES = {"train.py": "print('trained')\n", "net/model.py": "x = 1\n", "run.sh": "exec python train.py\n"}


def write(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """Write files. A file that ends in .sh is executable."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o700 if name.endswith(".sh") else 0o600)
    return folder


def entries(archive: bytes) -> dict[str, tarfile.TarInfo]:
    """Return the entries of a layer that is not compressed, or by gzip."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {info.name: info for info in tar}


def image(count: int = 2, *, kind: str = GZIP, docker: bool = False) -> tuple[Manifest, bytes]:
    """Return an image of some layers, with their history."""
    layers = []
    for number in range(count):
        digest = sha256(str(number).encode())
        layers.append((f"step {number}", Layer(blob=Blob(digest=digest, size=1, media_type=kind), diff_id=digest)))
    manifest, config = image_of(layers)
    if not docker:
        return manifest, config
    content = {**manifest.content, "mediaType": DOCKER}
    content["config"] = {**content["config"], "mediaType": "application/vnd.docker.container.image.v1+json"}
    return Manifest(data=json_bytes(content), media_type=DOCKER), config


def stored(store: Store, manifest: Manifest, config: bytes, tag: str = "cpu") -> Reference:
    """Put an image into a store, and return its reference."""
    registry = MemoryRegistry(store)
    assert manifest.config.media_type in (CONFIG, "application/vnd.docker.container.image.v1+json")
    store.blobs[manifest.config.digest] = config
    registry.put(manifest, tag)
    return Reference(repository=registry.repository, tag=tag)


def layer_of(folder: Path, work: Path, compression: LayerCompression = "gzip") -> CodeLayer:
    """Write the layer of all files of a folder."""
    names = [str(Path(here, name).relative_to(folder)) for here, _, files in os.walk(folder) for name in files]
    return code_layer(folder, names, at="/job", work=work, compression=compression)
