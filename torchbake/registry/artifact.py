"""What is attached to an image in its registry: JSON as an OCI artifact, bound to the image's digest.

Image specification 1.1, "artifactType" and "subject": registries with the referrers API list it with its image. Each
has a tag of its own besides, ``<immutable tag>.<name>``, so that registries without that API serve it too.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torchbake.oci.manifest import MANIFEST, Blob, Manifest, UnsoundError, sha256
from torchbake.oci.tag_names import artifact_tag
from torchbake.registry.client import Registry

_LARGEST = 64 * 2**20  # bytes; a large SBOM has one or two million
_EMPTY = b"{}"  # the empty descriptor of the image specification
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A text about an image. ``name`` ends its tag, ``media_type`` says what it is; ``created`` is RFC 3339."""

    name: str
    media_type: str
    text: str
    created: str = ""


def put_artifact(registry: Registry, artifact: Artifact, subject: Manifest) -> Manifest:
    """Attach it to its image, under its own digest; the same text is the same artifact. Raises RegistryError."""
    data = artifact.text.encode()
    for content in (data, _EMPTY):
        send(registry, content)
    content_of = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": artifact.media_type,
        "config": {"mediaType": _EMPTY_TYPE, "digest": sha256(_EMPTY), "size": len(_EMPTY)},
        "layers": [
            {
                "mediaType": artifact.media_type,
                "digest": sha256(data),
                "size": len(data),
                # The file that `oras pull` writes; without a title it writes none.
                "annotations": {"org.opencontainers.image.title": f"{artifact.name}.json"},
            }
        ],
        "subject": {"mediaType": subject.media_type, "digest": subject.digest, "size": len(subject.data)},
    }
    if artifact.created:
        content_of["annotations"] = {"org.opencontainers.image.created": artifact.created}
    data = json.dumps(content_of, sort_keys=True, separators=(",", ":")).encode()
    manifest = Manifest(data=data, media_type=MANIFEST)
    registry.put(manifest, manifest.digest)
    return manifest


def read_artifact(registry: Registry, tag: str, name: str) -> tuple[Manifest, bytes] | None:
    """An immutable tag's artifact; None where there is none. Raises UnsoundError for what is not an artifact."""
    where = artifact_tag(tag, name)
    manifest = registry.manifest(where)
    return None if manifest is None else (manifest, text_of(registry, manifest, where))


def text_of(registry: Registry, manifest: Manifest, where: str) -> bytes:
    """What an artifact says; ``where`` names it. Raises UnsoundError for what is none, or is far too large."""
    layers = manifest.layers
    if not layers:
        raise UnsoundError(f"{registry.repository}:{where} holds nothing.")
    if layers[0].size > _LARGEST:
        raise UnsoundError(f"{registry.repository}:{where} exceeds the {_LARGEST // 2**20} MiB limit.")
    return registry.read(layers[0])


def subject_of(manifest: Manifest) -> str:
    """The digest of the image that an artifact is of; empty where it names none."""
    subject = manifest.content.get("subject")
    return str(subject.get("digest", "")) if isinstance(subject, dict) else ""


def send(registry: Registry, data: bytes) -> None:
    """Upload bytes as a blob, unless they are there."""
    blob = Blob(digest=sha256(data), size=len(data))
    if registry.has(blob):
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        registry.upload(blob, Path(file.name))
