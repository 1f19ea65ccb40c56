"""OCI artifacts, which attach JSON to the digest of an image in its registry.

Image specification 1.1, "artifactType" and "subject": an artifact is listed with its image (`referrers`), and also has
a tag, ``<immutable tag>.<name>``. Some registries take only manifests of images. For them an artifact has the config
of an image.
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
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"  # of "{}", the empty descriptor of the image specification
_TITLE = "org.opencontainers.image.title"
CREATED = "org.opencontainers.image.created"
IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A text about an image. Its tag ends with ``name``; the time ``created`` is by RFC 3339.

    The files ``blobs`` belong to the artifact, and must be in the registry before it is attached.
    """

    name: str
    media_type: str
    text: str
    created: str = ""
    blobs: tuple[Blob, ...] = ()


def put_artifact(registry: Registry, artifact: Artifact, subject: Manifest, digest: str | None = None) -> Manifest:
    """Attach an artifact to its image under its digest, which the text alone decides. Raises RegistryError.

    ``digest`` is the digest of the artifact that was attached under this name before. If it has the config of an image,
    the new one gets the same form.
    """
    image_config = _image_config(artifact)
    forms = [(b"{}", _EMPTY_TYPE), (image_config, IMAGE_CONFIG)]
    as_image = _manifest_of(artifact, subject, *forms[1])
    if registry.images_only or digest == as_image.digest:
        forms = forms[1:]
    send(registry, artifact.text.encode())
    refusals = list[StatusError]()
    for config, config_type in forms:
        manifest = _manifest_of(artifact, subject, config, config_type)
        send(registry, config)
        try:
            listed = registry.attach(manifest)
        except StatusError as error:
            refusals.append(error)
            if not error.is_about_content:
                break
            continue
        registry.images_only = manifest == as_image
        if not listed:
            list_by_tag(registry, manifest, subject.digest)
        return manifest
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
                # The name of the file that `oras pull` writes; without a title it writes no file.
                "annotations": {_TITLE: file_name(artifact.name)},
            },
            *(blob.descriptor for blob in artifact.blobs),
        ],
        "subject": {"mediaType": subject.media_type, "digest": subject.digest, "size": len(subject.data)},
    }
    if artifact.created:
        content_of["annotations"] = {CREATED: artifact.created}
    return Manifest(data=_json(content_of), media_type=MANIFEST)


def _image_config(artifact: Artifact) -> bytes:
    """Return the smallest valid config of an image: https://github.com/opencontainers/image-spec/blob/main/config.md"""
    diff_ids = [sha256(artifact.text.encode()), *(blob.digest for blob in artifact.blobs)]
    rootfs = {"type": "layers", "diff_ids": diff_ids}
    return _json({"architecture": "unknown", "os": "unknown", "config": {}, "rootfs": rootfs})


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def read_artifact(registry: Registry, tag: str, name: str) -> tuple[Manifest, bytes] | None:
    """Read the artifact of an immutable tag; None if it has none. Raises UnsoundError if it is not an artifact."""
    where = artifact_tag(tag, name)
    manifest = registry.manifest(where)
    return None if manifest is None else (manifest, text_of(registry, manifest, where))


def text_of(registry: Registry, manifest: Manifest, where: str) -> bytes:
    """Read the text of the artifact at ``where``. Raises UnsoundError if it has no layer or is far too large."""
    layers = manifest.layers
    if not layers:
        raise UnsoundError(f"{registry.repository}:{where} holds nothing.")
    if layers[0].size > _LARGEST:
        raise UnsoundError(f"{registry.repository}:{where} exceeds the {_LARGEST // 2**20} MiB limit.")
    return registry.read(layers[0])


def subject_of(manifest: Manifest) -> str:
    """Return the digest of the image that an artifact is attached to; "" if it names no image."""
    subject = manifest.content.get("subject")
    return str(subject.get("digest", "")) if isinstance(subject, dict) else ""


def file_name(name: str) -> str:
    """Return the name of the file of an artifact with this name."""
    return f"{name}.json"


def title_of(manifest: Manifest) -> str:
    """Return the name of the file of an artifact; "" if it has none."""
    layers = manifest.content.get("layers")
    first = layers[0] if isinstance(layers, list) and layers else None
    annotations = first.get("annotations") if isinstance(first, dict) else None
    return str(annotations.get(_TITLE, "")) if isinstance(annotations, dict) else ""


def send(registry: Registry, data: bytes) -> None:
    """Upload bytes as a blob, unless the registry has it."""
    blob = Blob(digest=sha256(data), size=len(data))
    if registry.has(blob):
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        registry.upload(blob, Path(file.name))
