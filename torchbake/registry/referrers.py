"""The list of an image's artifacts, kept by the registry or by its clients under a tag.

Distribution specification 1.1, "Listing Referrers" and "Unavailable Referrers API". If a registry has no such API, the
client that pushes an artifact keeps an index of the image's artifacts under the tag ``sha256-<hex>``.
"""

import json
from typing import Any

from torchbake.errors import RegistryError
from torchbake.oci.manifest import INDEX, Manifest
from torchbake.registry.client import Registry
from torchbake.registry.transport import StatusError


def fallback_tag(digest: str) -> str:
    """Return the tag that lists the artifacts of an image."""
    return digest.replace(":", "-")


def referrers_of(registry: Registry, digest: str) -> frozenset[str]:
    """Return the digests of the artifacts that are listed for an image."""
    blobs = registry.referrers(digest)
    if blobs is None:
        index = _index(registry, digest)
        blobs = tuple(blob for blob, _ in index.images) if index else ()
    return frozenset(blob.digest for blob in blobs)


def list_again(registry: Registry, digest: str, subject: str) -> None:
    """List an artifact for its image, unless the registry or the tag lists it. Raises RegistryError."""
    artifact = None if digest in referrers_of(registry, subject) else registry.manifest(digest)
    if artifact and not registry.attach(artifact):
        list_by_tag(registry, artifact, subject)
        if not registry.lists_artifacts:
            tag = fallback_tag(subject)
            raise RegistryError(
                f"{registry.repository} refuses the list of artifacts under {tag}, which it took before.",
                hint="Let the registry take that tag more than once, and run again.",
            )


def list_by_tag(registry: Registry, artifact: Manifest, subject: str) -> None:
    """Add an artifact to the index under the tag, unless the index has it. Raises RegistryError.

    If the registry refuses the index, ``registry.lists_artifacts`` becomes false.
    """
    index = _index(registry, subject)
    content: dict[str, Any] = index.content if index else {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}
    if index and artifact.digest in {blob.digest for blob, _ in index.images}:
        return
    entry = {
        "mediaType": artifact.media_type,
        "digest": artifact.digest,
        "size": len(artifact.data),
        "artifactType": artifact.content.get("artifactType") or artifact.config.media_type,
        **{key: artifact.content[key] for key in ("annotations",) if key in artifact.content},
    }
    text = json.dumps({**content, "manifests": [*content["manifests"], entry]}, separators=(",", ":"))
    try:
        registry.put(Manifest(data=text.encode(), media_type=INDEX), fallback_tag(subject))
    except StatusError as error:
        if not error.is_about_content:
            raise
        registry.lists_artifacts = False


def _index(registry: Registry, digest: str) -> Manifest | None:
    """Read the index under the tag; None if there is none. Raises RegistryError if the tag holds something else."""
    tag = fallback_tag(digest)
    manifest = registry.manifest(tag)
    if manifest and (manifest.media_type != INDEX or not isinstance(manifest.content.get("manifests"), list)):
        raise RegistryError(
            f"{registry.repository}:{tag} is not a list of artifacts, and the registry has no list of its own.",
            hint="Remove that tag with the registry's own tools, and run again.",
        )
    return manifest
