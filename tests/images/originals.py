"""NVIDIA's files in the wheels of a lock. Their hashes come from the wheels, never from the image."""

import re
import threading
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tests.images.entries import Tree
from tests.images.subject import Row
from torchbake.build.wheel_records import WheelRecords
from torchbake.core.paths import layers_folder
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.lock.lockfile import LayerName, Pin
from torchbake.lock.nvidia import nvidia_folder
from torchbake.matrix.spec import VENV, ImageSpec
from torchbake.render.wheel_groups import GROUPS
from torchbake.store.layers import LayerStore

Originals: TypeAlias = Mapping[str, Mapping[str, str]]  # by a wheel's name: sha256 by paths in the image
FETCH_LIMIT = 600  # seconds
# `License.txt` of a `.dist-info`, or of cuSPARSELt's package; all of `.dist-info/licenses`.
_LICENSE = re.compile(
    r".*(\.dist-info/licenses/.+|/[^/.]*(licen[cs]e|eula|notice|copying)[^/.]*(\.(txt|md|rst|pdf))?)",
    flags=re.IGNORECASE,
)


def find_originals(row: Row, closing: threading.Event) -> Originals:
    """Find the hashes of NVIDIA's files in the wheels of a row's lock.

    If this machine packed a wheel, it kept them; else it fetches the wheel. Raises TorchbakeError.
    """
    if not isinstance(row.spec, ImageSpec) or not row.lock:
        return {}
    late = threading.Timer(FETCH_LIMIT, closing.set)
    late.daemon = True
    late.start()
    try:
        return {
            pin.name: _files_of(pin, _root(layer, row.spec), folder, row.spec, closing)
            for layer, pins in row.lock.layers.items()
            for pin in pins
            if (folder := nvidia_folder(pin.name)) is not None
        }
    except KeyboardInterrupt:
        raise BuildError(
            f"the wheels were not fetched within {FETCH_LIMIT} s.", hint="Those that were are kept: test again."
        ) from None
    finally:
        late.cancel()


def _files_of(pin: Pin, root: str, folder: str, spec: ImageSpec, closing: threading.Event) -> dict[str, str]:
    records, pip = WheelRecords(folder=LayerStore(folder=layers_folder()).records), read_pip_config()
    hashes = records.find_or_fetch(
        pin, pip, spec.base.python, pip.instead(spec) or spec.indexes, closing, platform=spec.platform
    )
    return {f"{root}/{name}": hashed for name, hashed in hashes.items() if name.startswith(folder)}


def _root(layer: LayerName, spec: ImageSpec) -> str:
    """The folder of an image into which the wheels of a layer are installed."""
    roots = {group.layer: group.root for group in GROUPS}
    return roots.get(layer, f"{VENV}/lib/python{spec.base.python}/site-packages")


def altered(originals: Originals, tree: Tree) -> Iterator[str]:
    """Find the files that differ from the wheels. A file may be missing, but not all files of a wheel."""
    hashes_by_path: dict[str, set[str]] = {}  # two wheels may have a file at the same path
    for files in originals.values():
        for path, hashed in files.items():
            hashes_by_path.setdefault(path, set()).add(hashed)
    there = {entry.path: entry.sha256 for entry in tree.entries}
    yield from (path for path, hashes in hashes_by_path.items() if there.get(path, next(iter(hashes))) not in hashes)
    yield from (f"{wheel}, of which no file is there" for wheel, files in originals.items() if not files.keys() & there)


def without_license(originals: Originals, tree: Tree) -> Iterator[str]:
    """Find the license texts of NVIDIA's wheels that the image lacks."""
    there = {entry.path for entry in tree.entries}
    yield from (path for files in originals.values() for path in filter(_LICENSE.fullmatch, files) if path not in there)
