"""Packages of an image from an engine or from files, with a cache of the layers that were read."""

import contextlib
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

from torchbake.core.files import replacing
from torchbake.engine.export import Content, ImageSource
from torchbake.oci.manifest import MANIFEST, Manifest
from torchbake.sbom.packages import CompressedLayer, ImagePackages, packages_in, remember


def sbom_of_contents(
    manifest: Manifest, contents: ImagePackages, *, name: str, version: str, created: str | None
) -> str:
    """Return the SBOM of an image with known packages. ``created`` is RFC 3339."""
    # py_serializable logs a debug line for each field as soon as it is imported, and nox shows debug lines.
    logging.getLogger("py_serializable").setLevel(logging.WARNING)
    # Imported here, as it takes a quarter of a second, which a release without due images does not need.
    from torchbake.sbom.cyclonedx import sbom_text  # noqa: PLC0415

    return sbom_text(contents, name=name, version=version, digest=manifest.digest, created=created)


def unread(cache: Path | None) -> Callable[[str], bool]:
    """Return a predicate for `ImageSource.take_out` that selects the digests of layers that the cache does not have."""
    return lambda digest: remember(digest, cache) is None


def contents_in(content: Content, cache: Path | None) -> ImagePackages:
    """Return the packages in an image's files. Layers in ``cache`` need no file.

    Raise EngineError for a layer that is neither in the cache nor in a file, or cannot be read.
    """
    return packages_in(
        [CompressedLayer(digest=blob.digest, path=content.path(blob)) for blob in content.manifest.layers], cache
    )


def look_into(source: ImageSource, digest: str, cache: Path) -> tuple[Content, ImagePackages]:
    """Read an image by its manifest's digest. Only layers that the cache lacks are taken from the source.

    The files of the returned content are deleted; its manifest is in memory. Raise EngineError.
    """
    place = cache / f"{digest.replace(':', '-')}.manifest.json"
    with contextlib.suppress(OSError):
        manifest = Manifest(data=place.read_bytes(), media_type=MANIFEST)
        if manifest.digest == digest and not any(map(unread(cache), (blob.digest for blob in manifest.layers))):
            content = Content(manifest=manifest, folder=cache)
            return content, contents_in(content, cache)
    with tempfile.TemporaryDirectory(prefix="torchbake-sbom-") as folder:
        content = source.take_out(digest, Path(folder), unread(cache))
        contents = contents_in(content, cache)
    with contextlib.suppress(OSError), replacing(place) as temporary:
        temporary.write_bytes(content.manifest.data)
    return content, contents
