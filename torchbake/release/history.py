"""The packages of an image's releases, from the registry alone: by the SBOM and the record of each release."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from torchbake.core.parallel import side_by_side
from torchbake.oci.manifest import UnsoundError
from torchbake.oci.tag_names import SBOM, revisions_of
from torchbake.registry.artifact import read_artifact, subject_of
from torchbake.registry.client import Registry
from torchbake.registry.variants import images_of
from torchbake.release.record import find_record
from torchbake.sbom.packages import ImagePackages
from torchbake.sbom.read_cyclonedx import SbomError, packages_of_sbom

_SIDE_BY_SIDE = 8  # releases that are read in parallel


@dataclass(frozen=True, kw_only=True)
class ReleasedPackages:
    """A release with the ``day`` of its record, by UTC, and its packages.

    If the record or the SBOM cannot be read, there are no packages, and ``problem`` is the reason.
    """

    tag: str
    digest: str = ""
    day: date | None = None
    packages: ImagePackages | None = None
    problem: str = ""


def read_history(registry: Registry, own_tag: str, *, newest: bool = False) -> list[ReleasedPackages]:
    """Read the releases of the image with an own tag, oldest first, or the newest one alone. Raises RegistryError.

    A revision without a record is left out: its release was not finished.
    """
    tags = [str(tag) for tag in revisions_of(own_tag, registry.tags())]
    if not newest:
        return _recorded(side_by_side(lambda tag: _read(registry, tag), tags, most=_SIDE_BY_SIDE))
    for tag in reversed(tags):
        if releases := _recorded([_read(registry, tag)]):
            return releases
    return []


def read_release(registry: Registry, tag: str) -> ReleasedPackages:
    """Read the release with an immutable tag. Raises RegistryError."""
    return _read(registry, tag) or ReleasedPackages(tag=tag, problem="it has no record")


def digests_of(registry: Registry, digest: str) -> frozenset[str]:
    """Return the digests that a report on a released image may name: those of its manifests and configs.

    Raises RegistryError.
    """
    manifest = registry.manifest(digest)
    images = images_of(registry, manifest) if manifest else ()
    return frozenset({digest, *(one for image in images for one in (image.digest, image.config.digest))})


def _recorded(releases: Sequence[ReleasedPackages | None]) -> list[ReleasedPackages]:
    return [one for one in releases if one]


def _read(registry: Registry, tag: str) -> ReleasedPackages | None:
    """Read a release; None if it has no record."""
    try:
        stored = find_record(registry, tag)
        if stored is None:
            return None
        record = stored.record
        day = datetime.fromisoformat(record.released).date()
    except (UnsoundError, ValueError) as error:
        return ReleasedPackages(tag=tag, problem=f"its record cannot be read: {error}")
    if (there := registry.digest(tag)) != record.digest:
        return ReleasedPackages(tag=tag, problem=f"its record is about {record.digest}, and the tag holds {there}")
    packages, problem = _packages(registry, tag, record.digest)
    return ReleasedPackages(tag=tag, digest=record.digest, day=day, packages=packages, problem=problem)


def _packages(registry: Registry, tag: str, digest: str) -> tuple[ImagePackages | None, str]:
    """Return the packages in the SBOM of a release, or the reason for which there are none."""
    try:
        artifact = read_artifact(registry, tag, SBOM)
        if artifact is None:
            return None, "it has no SBOM"
        manifest, data = artifact
        if subject_of(manifest) != digest:
            return None, f"its SBOM is about {subject_of(manifest) or 'no image'}"
        return packages_of_sbom(data), ""
    except (UnsoundError, SbomError) as error:
        return None, f"its SBOM cannot be read: {error}"
