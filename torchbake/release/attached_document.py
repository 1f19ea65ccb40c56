"""Attach a document to a released image, at any time after its release.

It has no tag, because tags of a release are written once, and a newer document may follow. It is listed with the image
and has the time at which it was attached, so readers can take the newest.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from torchbake.errors import RegistryError
from torchbake.oci.manifest import Manifest, sha256
from torchbake.registry.artifact import Artifact, put_artifact, subject_of
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Signer
from torchbake.registry.referrers import referrers_of


def attach_document(registry: Registry, digest: str, artifact: Artifact, signer: Signer) -> str:
    """Attach a document to the image of a digest, sign it, and return its digest. Raises RegistryError.

    If the image has a document with the same text, nothing is written except a missing signature.
    """
    image = registry.manifest(digest)
    if image is None:
        raise RegistryError(f"{registry.repository} does not hold {digest}.", hint="Publish again.")
    there = _same(registry, digest, artifact)
    if there is None:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        there = put_artifact(registry, replace(artifact, created=created), image)
    if not signer.skip_reason and not signer.holds(registry.repository, [there.digest]):
        signer.sign(registry.repository, [there.digest])
    return there.digest


def _same(registry: Registry, digest: str, artifact: Artifact) -> Manifest | None:
    """Find the attached document with the same text."""
    expected = (artifact.media_type, digest, [sha256(artifact.text.encode())])
    for one in sorted(referrers_of(registry, digest)):
        manifest = registry.manifest(one)
        if manifest and (manifest.content.get("artifactType"), subject_of(manifest), _layers(manifest)) == expected:
            return manifest
    return None


def _layers(manifest: Manifest) -> Sequence[str]:
    return [layer.digest for layer in manifest.layers]
