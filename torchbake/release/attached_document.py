"""Attach a document to a released image, at any time after its release.

It has no tag, because tags of a release are written once, and a newer document may follow. It is listed with the image
and has the time at which it was attached, so readers can take the newest.
"""

from dataclasses import replace
from datetime import UTC, datetime

from torchbake.errors import RegistryError
from torchbake.oci.manifest import Manifest, sha256
from torchbake.registry.artifact import CREATED, Artifact, file_name, put_artifact, subject_of, title_of
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Signer
from torchbake.registry.referrers import referrers_of


def attach_document(
    registry: Registry, digest: str, artifact: Artifact, signer: Signer, *, always: bool = True
) -> str:  # fmt: skip
    """Attach a document to the image of a digest, sign it, and return its digest. Raises RegistryError.

    If the newest document of the image has the same text, nothing is written except a missing signature.
    Unless ``always``, a document only follows an earlier one: without one, the returned digest is empty.
    """
    image = registry.manifest(digest)
    if image is None:
        raise RegistryError(f"{registry.repository} does not hold {digest}.", hint="Publish again.")
    there = _newest(registry, digest, artifact)
    if there is None and not always:
        return ""
    if there is None or there.layers[0].digest != sha256(artifact.text.encode()):
        created = datetime.now(UTC).isoformat(timespec="microseconds")  # two in one second have an order
        there = put_artifact(registry, replace(artifact, created=created), image)
    if not signer.skip_reason and not signer.holds(registry.repository, [there.digest]):
        signer.sign(registry.repository, [there.digest])
    return there.digest


def _newest(registry: Registry, digest: str, artifact: Artifact) -> Manifest | None:
    """Find the newest attached document with this name. An older one with the same text does not count any more."""
    manifests = filter(None, map(registry.manifest, sorted(referrers_of(registry, digest))))
    key = (digest, artifact.media_type, file_name(artifact.name))
    own = [one for one in manifests if (subject_of(one), one.content.get("artifactType"), title_of(one)) == key]
    return max(own, key=_created, default=None)


def _created(manifest: Manifest) -> str:
    annotations = manifest.content.get("annotations")
    return str(annotations.get(CREATED, "")) if isinstance(annotations, dict) else ""
