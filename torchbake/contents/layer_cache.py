"""A cache of the contents of layers, by digest, and of an engine's images, which it can only send as a whole."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import zstandard

from torchbake.contents import gpu_code, package_files, scan
from torchbake.contents.package_files import NamedPackage
from torchbake.contents.scan import LayerContents, LayerScanner, ScannedFile
from torchbake.contents.stored_image import StoredImage, StoredLayer
from torchbake.core.digest import code_digest
from torchbake.core.files import replacing
from torchbake.oci import layer_stream, layer_tar
from torchbake.sbom import package_metadata

_LIMIT = 500 * 10**6  # bytes; a layer of 20,000 files has 1 MB
_LARGEST = 2**30  # bytes of a file of the cache, unpacked
_LEVEL = 3  # of zstd
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError)
# The digest of the code that reads layers, in place of a version number that must be raised by hand.
_MODULES = [gpu_code, layer_tar, package_files, scan, layer_stream, package_metadata, sys.modules[__name__]]


@dataclass(frozen=True, kw_only=True)
class LayerCache:
    """Reads layers with a scanner, unless ``folder`` has what they hold.

    The folder may be missing or read-only. None is no cache.
    """

    folder: Path | None
    scanner: LayerScanner

    def find(self, digest: str) -> LayerContents | None:
        """Return what a layer holds; None if this version of the code has not read the layer."""
        data = self._load(f"{digest}.layer")
        with contextlib.suppress(*_MALFORMED):
            contents = _layer_of(data)
            return contents if contents.digest == digest else None
        return None

    def scan(self, file: IO[bytes], digest: str = "") -> LayerContents:
        """Read a layer, and keep what it holds. Raises EngineError as the scanner does."""
        contents = self.scanner.scan(file, digest)
        self._store(f"{contents.digest}.layer", _fields_of(contents))
        return contents

    def find_image(self, name: str) -> StoredImage | None:
        """Return an image that `keep_image` has kept under a name."""
        data = self._load(f"{name}.image")
        with contextlib.suppress(*_MALFORMED):
            layers = tuple(StoredLayer(**layer) for layer in data["layers"])
            return StoredImage(digest=data["digest"], config=dict(data["config"]), layers=layers)
        return None

    def keep_image(self, name: str, image: StoredImage) -> None:
        self._store(f"{name}.image", asdict(image))

    @cached_property
    def _reader(self) -> str:
        return code_digest(_MODULES)

    def _path(self, name: str) -> Path | None:
        return self.folder / f"{name.replace(':', '-').replace('/', '-')}.{self._reader}.zst" if self.folder else None

    def _load(self, name: str) -> Any:
        path = self._path(name)
        with contextlib.suppress(OSError, ValueError, zstandard.ZstdError):
            if path:
                data = zstandard.ZstdDecompressor().decompress(path.read_bytes(), max_output_size=_LARGEST)
                with contextlib.suppress(OSError):  # a read-only cache
                    os.utime(path)
                return json.loads(data)
        return None

    def _store(self, name: str, value: Any) -> None:
        path = self._path(name)
        if path is None:
            return
        with contextlib.suppress(OSError):  # without a cache, the layer is read again
            data = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
            with replacing(path) as temporary:
                temporary.write_bytes(zstandard.ZstdCompressor(level=_LEVEL).compress(data))
            _tidy(path.parent)


def _tidy(folder: Path) -> None:
    """Remove the files whose last use is the longest ago, until the others fit into the limit."""
    files = [(path.stat(), path) for path in folder.glob("*.zst")]
    total = sum(status.st_size for status, _ in files)
    for status, path in sorted(files, key=lambda each: each[0].st_mtime):
        if total <= _LIMIT:
            break
        path.unlink(missing_ok=True)
        total -= status.st_size


def _fields_of(contents: LayerContents) -> dict[str, Any]:
    """Return what a layer holds as JSON; files are columns, which compress better."""
    columns = [*zip(*contents.files, strict=True)] or [()] * len(ScannedFile._fields)
    return {
        "digest": contents.digest, "stored": contents.stored, "compressed": contents.compressed, "files": columns,
        "whiteouts": contents.whiteouts, "packages": contents.packages, "lists": contents.lists,
    }  # fmt: skip


def _layer_of(data: Any) -> LayerContents:
    """Return what a layer holds. Raises ValueError, LookupError or TypeError for other data."""
    packages = {path: tuple(_packages(rows)) for path, rows in data["packages"].items()}
    files = tuple(map(ScannedFile._make, zip(*data["files"], strict=True)))
    lists = {path: tuple(names) for path, names in data["lists"].items()}
    return LayerContents(
        digest=data["digest"], stored=data["stored"], compressed=data["compressed"], files=files,
        whiteouts=tuple(data["whiteouts"]), packages=packages, lists=lists,
    )  # fmt: skip


def _packages(rows: Any) -> Iterator[NamedPackage]:
    return map(NamedPackage._make, rows)
