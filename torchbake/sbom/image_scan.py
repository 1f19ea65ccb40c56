"""What an image holds, out of an engine or out of files at hand; what was read once is remembered."""

import contextlib
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

from torchbake.core.files import replacing
from torchbake.engine.export import Content, Source
from torchbake.oci.manifest import MANIFEST, Manifest
from torchbake.sbom.packages import Contents, Layer, packages_in, remembered


def sbom_of(content: Content, cache: Path | None, *, name: str, version: str, created: str | None) -> str:
    """An image's SBOM (`torchbake.sbom`). Layers that ``cache`` knows need not be among the content's.

    Raises EngineError for a layer that is neither remembered nor at hand, or cannot be read.
    """
    return sbom_of_contents(content.manifest, contents_in(content, cache), name=name, version=version, created=created)


def sbom_of_contents(manifest: Manifest, contents: Contents, *, name: str, version: str, created: str | None) -> str:
    """The SBOM of an image whose packages are known. ``created`` is RFC 3339."""
    # nox shows every library's debug lines, and this one has a line for each of its fields, from its import on.
    logging.getLogger("py_serializable").setLevel(logging.WARNING)
    # Here, as the library takes a quarter of a second to load, which a release that finds nothing due need not wait.
    from torchbake.sbom.cyclonedx import Subject, sbom_text  # noqa: PLC0415

    return sbom_text(Subject(name=name, version=version, digest=manifest.digest, created=created), contents)


def unread(cache: Path | None) -> Callable[[str], bool]:
    """Whether a layer, by its digest, is not remembered: what `Source.take_out` is to bring for `sbom_of`."""
    return lambda digest: remembered(digest, cache) is None


def contents_in(content: Content, cache: Path | None) -> Contents:
    """The packages in an image's files. Raises EngineError, as `sbom_of` does."""
    return packages_in([Layer(digest=blob.digest, path=content.path(blob)) for blob in content.manifest.layers], cache)


def look_into(source: Source, digest: str, cache: Path) -> tuple[Content, Contents]:
    """An image by its manifest's digest; the source is asked only for layers that are not remembered.

    The content's files are gone when this returns, its manifest is not. Raises EngineError.
    """
    known = _manifest(digest, cache)
    if known and not any(map(unread(cache), (blob.digest for blob in known.layers))):
        content = Content(manifest=known, folder=cache)
        return content, contents_in(content, cache)
    with tempfile.TemporaryDirectory(prefix="torchbake-sbom-") as folder:
        content = source.take_out(digest, Path(folder), unread(cache))
        contents = contents_in(content, cache)
    with contextlib.suppress(OSError), replacing(_place(digest, cache)) as temporary:
        temporary.write_bytes(content.manifest.data)
    return content, contents


def _manifest(digest: str, cache: Path) -> Manifest | None:
    """A manifest that was read before; None for bytes that its digest is not of."""
    try:
        manifest = Manifest(data=_place(digest, cache).read_bytes(), media_type=MANIFEST)
    except OSError:
        return None
    return manifest if manifest.digest == digest else None


def _place(digest: str, cache: Path) -> Path:
    return cache / f"{digest.replace(':', '-')}.manifest.json"
