"""Sets an immutable tag, with what is attached to its image: once, and never over what somebody else has released."""

from collections.abc import Mapping

from torchbake.errors import RegistryError
from torchbake.oci.manifest import Manifest, UnsoundError
from torchbake.oci.tag_names import ARTIFACTS, artifact_tag
from torchbake.registry.artifact import put_artifact
from torchbake.registry.client import Registry
from torchbake.release.candidate import Parcel
from torchbake.release.record import Record, read_record

_HINT = "Publish again: it finds the next revision. Let machines wait for each other: docs/releases.md#several-at-once"


def place(registry: Registry, parcel: Parcel, tag: str) -> dict[str, str]:
    """Set the tag, asked for before and after, and then those of what is attached to its image.

    The tag goes first: whoever sets it has the revision, and nobody else leaves a tag of that revision behind. The
    artifacts are there before, under their digests. Return these, by name. Raises RegistryError if the tag is another
    release's.
    """
    manifest = parcel.manifest
    taken = registry.digest(tag)
    if taken not in (None, manifest.digest):
        raise RegistryError(
            f"{registry.repository}:{tag} was taken by another release meanwhile ({taken}).", hint=_HINT
        )
    places = [artifact_tag(tag, artifact.name) for artifact in parcel.artifacts]
    there = dict(zip(places, registry.digests(places), strict=True))
    pushed = {
        where: put_artifact(registry, artifact, manifest, there[where])
        for where, artifact in zip(places, parcel.artifacts, strict=True)
    }
    if taken is None:
        registry.put(manifest, tag)
    for where, artifact in pushed.items():
        if there[where] != artifact.digest:  # it is not there, or somebody has overwritten it
            registry.put(artifact, where)
    attached = {one.name: pushed[where].digest for where, one in zip(places, parcel.artifacts, strict=True)}
    if taken is None:
        _give_way(registry, tag, {tag: manifest.digest, **_attached_tags(tag, attached)})
    return attached


def put_once(registry: Registry, manifest: Manifest, tag: str) -> None:
    """Set a tag that is not there; a registry may refuse to set it again, also to what it is."""
    if registry.digest(tag) is None:
        registry.put(manifest, tag)


def _give_way(registry: Registry, tag: str, ours: Mapping[str, str]) -> None:
    """Put back what another machine has released under a new tag since it was asked for; then raise RegistryError.

    That its record is there tells that it was first: a record is written after the tag, and a revision that has one is
    never set again.
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
    """Raises RegistryError for a tag that does not point, any more, at the digest that was set."""
    for (tag, digest), found in zip(places.items(), registry.digests(places), strict=True):
        if found != digest:
            raise RegistryError(
                f"{registry.repository}:{tag} was set to {digest}, and now is {found or 'gone'}: "
                "somebody else releases there at the same time.",
                hint=_HINT,
            )


def places_of(record: Record) -> dict[str, str]:
    """The tags of a release, without its record's, and what they point at."""
    return {record.tag: record.digest, **_attached_tags(record.tag, record.attached)}


def _attached_tags(tag: str, attached: Mapping[str, str]) -> dict[str, str]:
    return {artifact_tag(tag, name): attached[name] for name in ARTIFACTS if name in attached}
