"""The parts of an index: the newest release of each platform, read from a registry, and the index that joins them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchbake.errors import RegistryError
from torchbake.oci.in_toto import MEDIA_TYPE
from torchbake.oci.labels import CREATED, ID, VERSION_LABEL
from torchbake.oci.manifest import Manifest, UnsoundError
from torchbake.oci.platforms import fits
from torchbake.oci.tag_names import PROVENANCE, SBOM, ImmutableTag, revisions_of
from torchbake.oci.variants import entry_of, joined_index
from torchbake.registry.artifact import Artifact
from torchbake.registry.client import Registry
from torchbake.registry.variants import images_of
from torchbake.release.attestations import SBOM_TYPE
from torchbake.release.candidate import Candidate, Parcel, TransferCount
from torchbake.release.decide import TagHolder
from torchbake.release.platforms import PlatformPart, PlatformSet, joined_labels
from torchbake.release.provenance import provenance_text
from torchbake.release.record import PlatformRelease, record_of
from torchbake.release.repository_view import Holdings


@dataclass(frozen=True, kw_only=True)
class ReleasedPart:
    """The newest release of one platform."""

    part: PlatformPart
    tag: ImmutableTag
    holder: TagHolder


def read_parts(registry: Registry, image: PlatformSet) -> tuple[tuple[ReleasedPart, ...], dict[str, str]]:
    """Find the newest release of each platform, and the reasons of platforms without one of today's files.

    Nothing is verified. Raises RegistryError.
    """
    served, holdings = registry.tags(), Holdings(registry)
    released, lacking = list[ReleasedPart](), dict[str, str]()
    for part in image.parts:
        revisions = revisions_of(part.name, served)
        holder = holdings.look(str(revisions[-1])) if revisions else None
        reason = _why_lacking(registry, part, revisions[-1] if revisions else None, holder)
        if reason or holder is None:
            lacking[part.platform] = reason
        else:
            released.append(ReleasedPart(part=part, tag=revisions[-1], holder=holder))
    return tuple(released), lacking


def _why_lacking(registry: Registry, part: PlatformPart, tag: ImmutableTag | None, holder: TagHolder | None) -> str:
    if tag is None or holder is None:
        return f"{part.id} is not released yet"
    if holder.labels.get(ID) != part.id:
        return f"{tag} is not an image of {part.id}"
    if record_of(registry, str(tag), holder.digest) is None:
        return f"the release of {tag} was interrupted"
    reason = part.why_old(holder.labels)
    return f"{tag} is not of today's files: {reason}" if reason else ""


def join(registry: Registry, image: PlatformSet, parts: Sequence[ReleasedPart]) -> tuple[Candidate, Parcel]:
    """Join the releases of all platforms: the index, and its documents. Nothing is written. Raises RegistryError."""
    entries = [_entries(registry, part) for part in parts]
    index = joined_index(entries)
    labels = joined_labels({each.part.platform: each.holder.labels for each in parts})
    releases = {
        each.part.platform: PlatformRelease(tag=str(each.tag), digest=each.holder.digest) for each in parts
    }  # fmt: skip
    candidate = Candidate(
        id=image.id, digest=index.digest, labels=labels, tags=image.tags, verdict=None, platforms=releases
    )
    images = tuple(images_of(registry, index))
    whole = sum(blob.size for blob in {blob for each in images for blob in each.blobs})
    count = TransferCount(bytes=0, layers=0, whole=whole)
    artifacts = _artifacts(image.repository, index, labels, releases)
    return candidate, Parcel(manifest=index, images=images, artifacts=artifacts, count=count)


def _entries(registry: Registry, released: ReleasedPart) -> list[dict[str, Any]]:
    """Describe the images of a platform's release: one image, or its variants in their order."""
    manifest, platform = registry.manifest(released.holder.digest), released.part.platform
    if manifest is None:
        raise RegistryError(f"{registry.repository}:{released.tag} is gone.")
    entries = manifest.content["manifests"] if manifest.is_index else [entry_of(manifest, registry.config(manifest))]
    index = joined_index([entries])
    wrong = next((where for _, where in index.images if not fits(where, platform)), "")
    if wrong:
        raise UnsoundError(f"{registry.repository}:{released.tag} is for {wrong}, not for {platform}.")
    return list(entries)


def _artifacts(
    name: str, index: Manifest, labels: Mapping[str, str], releases: Mapping[str, PlatformRelease]
) -> tuple[Artifact, ...]:
    """Make the documents of an index: they name the images of its platforms, which have documents of their own."""
    from torchbake.sbom.cyclonedx import index_sbom_text  # noqa: PLC0415 - a release without an index needs none

    digests = {platform: release.digest for platform, release in releases.items()}
    version, created = labels.get(VERSION_LABEL, ""), labels.get(CREATED, "")
    sbom = index_sbom_text(digests, name=name, version=version, digest=index.digest, created=created)
    provenance = provenance_text(name, index.digest, labels, platforms=digests)
    return (
        Artifact(name=SBOM, media_type=SBOM_TYPE, text=sbom),
        Artifact(name=PROVENANCE, media_type=MEDIA_TYPE, text=provenance),
    )
