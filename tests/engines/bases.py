"""The Debian base of the tests: bootstrapped once, and also served by a registry for engines that need that."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.conftest import ROOT
from tests.e2e.registries import registry
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import Transport
from torchbake.store.layout import Layout

IN_MATRIX = "debian:bookworm-slim"
NOWHERE = "registry.invalid/debian:12"  # no registry serves it, so torchbake bootstraps the base


@contextmanager
def served_base(tools: Path, folder: Path, bases: Path) -> Iterator[str]:
    """Serve a bootstrapped base on 127.0.0.1, where plain HTTP is allowed, and return its reference."""
    record = json.loads((bases / "debian12.json").read_text())
    manifest = (layout := Layout(folder=bases / "debian12")).find(record["digest"])
    assert manifest is not None, record
    with registry(tools, folder) as running:
        target = Registry(Transport(running.host), Repository(host=running.host, path="library/debian"))
        for blob in manifest.blobs:
            target.upload(blob, layout.path(blob.digest))
        target.put(manifest, "12")
        yield f"{running.host}/library/debian:12"


def matrix_with(image: str) -> str:
    """Return this repository's matrix with another image as its base."""
    matrix = (ROOT / "matrix.yaml").read_text()
    assert f'"{IN_MATRIX}"' in matrix
    return matrix.replace(f'"{IN_MATRIX}"', f'"{image}"')
