"""What is attached to an image in its registry: JSON as an OCI artifact, bound to the image's digest.

Image specification 1.1, "artifactType" and "subject": an artifact is listed with its image (`referrers`), and also has
a tag, ``<immutable tag>.<name>``.

Some registries take manifests of images alone. For these an artifact has the config of an image; all else is the same.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torchbake.oci.manifest import MANIFEST, Blob, Manifest, UnsoundError, sha256
from torchbake.oci.tag_names import artifact_tag
from torchbake.registry.client import Registry
from torchbake.registry.referrers import list_by_tag
from torchbake.registry.transport import StatusError

_LARGEST = 64 * 2**20  # bytes; a large SBOM has one or two million
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"  # of "{}": the empty descriptor of the image specification
IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A text about an image. ``name`` ends its tag, ``media_type`` says what it is; ``created`` is RFC 3339.

    ``blobs`` are other files that belong to it. They must be in the registry before it is attached.
    """

    name: str
    media_type: str
    text: str
    created: str = ""
    blobs: tuple[Blob, ...] = ()


def put_artifact(registry: Registry, artifact: Artifact, subject: Manifest, known: str | None = None) -> Manifest:
    """Attach it to its image, under its own digest; the same text is the same artifact. Raises RegistryError.

    ``known`` is the digest of what is attached in its place: if it has the config of an image, so it stays.
    """
    plain, as_image = ((_manifest_of(artifact, subject, *config), config[0]) for config in _configs(artifact))
    send(registry, artifact.text.encode())
    only_image = registry.images_only or known == as_image[0].digest
    manifest, listed = _attach(registry, *([as_image] if only_image else [plain, as_image]))
    registry.images_only = manifest == as_image[0]
    if not listed:
        list_by_tag(registry, manifest, subject.digest)
    return manifest


def _attach(registry: Registry, *forms: tuple[Manifest, bytes]) -> tuple[Manifest, bool]:
    """Push the first of the manifests, each with its config, that the registry takes; whether it lists it."""
    refusals = []
    for manifest, config in forms:
        send(registry, config)
        try:
            return manifest, registry.attach(manifest)
        except StatusError as error:
            refusals.append(error)
            if not error.is_about_content:
                break
    raise refusals[0]


def _manifest_of(artifact: Artifact, subject: Manifest, config: bytes, config_type: str) -> Manifest:
    data = artifact.text.encode()
    content_of = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": artifact.media_type,
        "config": {"mediaType": config_type, "digest": sha256(config), "size": len(config)},
        "layers": [
            {
                "mediaType": artifact.media_type,
                "digest": sha256(data),
                "size": len(data),
                # The file that `oras pull` writes; without a title it writes none.
                "annotations": {"org.opencontainers.image.title": f"{artifact.name}.json"},
            },
            *(blob.descriptor for blob in artifact.blobs),
        ],
        "subject": {"mediaType": subject.media_type, "digest": subject.digest, "size": len(subject.data)},
    }
    if artifact.created:
        content_of["annotations"] = {"org.opencontainers.image.created": artifact.created}
    return Manifest(data=_json(content_of), media_type=MANIFEST)


def _configs(artifact: Artifact) -> tuple[tuple[bytes, str], tuple[bytes, str]]:
    """The empty config, and the least that an image's config must have, each with its type.

    https://github.com/opencontainers/image-spec/blob/main/config.md
    """
    diff_ids = [sha256(artifact.text.encode()), *(blob.digest for blob in artifact.blobs)]
    rootfs = {"type": "layers", "diff_ids": diff_ids}
    image = _json({"architecture": "unknown", "os": "unknown", "config": {}, "rootfs": rootfs})
    return (b"{}", _EMPTY_TYPE), (image, IMAGE_CONFIG)


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


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
