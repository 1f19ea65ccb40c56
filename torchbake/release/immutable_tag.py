"""Set an immutable tag and the tags of its image's artifacts once, and never over a release of another machine."""

from collections.abc import Mapping

from torchbake.errors import RegistryError
from torchbake.oci.manifest import UnsoundError
from torchbake.oci.tag_names import ARTIFACTS, artifact_tag
from torchbake.registry.artifact import put_artifact
from torchbake.registry.client import Registry
from torchbake.release.candidate import Parcel
from torchbake.release.record import Record, read_record
from torchbake.ui.command import Command

_HINT = (
    "Publish again: it finds the next revision. "
    f"Let machines wait for each other: {Command('help', 'releases#several-at-once')}"
)


def place(registry: Registry, parcel: Parcel, tag: str) -> dict[str, str]:
    """Set the immutable tag, then the tags of the artifacts, and return the digests of the artifacts by name.

    The artifacts are sent by digest before the first tag. The immutable tag is the first: a machine that sets it owns
    the revision, so other machines leave no tags of that revision behind. It is read before and after. Raises
    RegistryError if it belongs to another release.
    """
    manifest = parcel.manifest
    value = registry.digest(tag)
    if value not in (None, manifest.digest):
        raise RegistryError(
            f"{registry.repository}:{tag} was taken by another release meanwhile ({value}).", hint=_HINT
        )
    places = [artifact_tag(tag, artifact.name) for artifact in parcel.artifacts]
    there = dict(zip(places, registry.digests(places), strict=True))
    pushed = {
        where: put_artifact(registry, artifact, manifest, there[where])
        for where, artifact in zip(places, parcel.artifacts, strict=True)
    }
    if value is None:
        registry.put(manifest, tag)
    for where, artifact in pushed.items():
        if there[where] != artifact.digest:  # the tag does not exist, or somebody has overwritten it
            registry.put(artifact, where)
    attached = {one.name: pushed[where].digest for where, one in zip(places, parcel.artifacts, strict=True)}
    if value is None:
        _give_way(registry, tag, {tag: manifest.digest, **_attached_tags(tag, attached)})
    return attached


def _give_way(registry: Registry, tag: str, ours: Mapping[str, str]) -> None:
    """If another machine has released the same new revision at the same time, restore its tags and raise RegistryError.

    If its record exists, the other machine was first: a record is written after the tag, and no machine sets the tag of
    a revision that has a record.
    """
    try:
        theirs = read_record(registry, tag)
    except UnsoundError:
        return
    if theirs is None or theirs.tag != tag or theirs.digest == ours[tag]:
        return
    for where, digest in places_of(theirs).items():
        manifest = registry.manifest(digest)
        if manifest and registry.digest(where) == ours.get(where):
            registry.put(manifest, where)
    raise RegistryError(
        f"{registry.repository}:{tag} was released by somebody else at the same moment ({theirs.digest}), "
        "and was put back.",
        hint=_HINT,
    )


def expect(registry: Registry, places: Mapping[str, str]) -> None:
    """Check that each tag still points at the digest to which it was set. Raises RegistryError."""
    for (tag, digest), text in zip(places.items(), registry.digests(places), strict=True):
        if text != digest:
            raise RegistryError(
                f"{registry.repository}:{tag} was set to {digest}, and now is {text or 'gone'}: "
                "somebody else releases there at the same time.",
                hint=_HINT,
            )


def places_of(record: Record) -> dict[str, str]:
    """Return the tags of a release with their digests, without the record's tag."""
    return {record.tag: record.digest, **_attached_tags(record.tag, record.attached)}


def _attached_tags(tag: str, attachments: Mapping[str, str]) -> dict[str, str]:
    return {artifact_tag(tag, name): attachments[name] for name in ARTIFACTS if name in attachments}
