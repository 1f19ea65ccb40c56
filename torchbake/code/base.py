"""The image in a registry that gets a layer of code, found by its reference."""

from dataclasses import dataclass, replace

from torchbake.errors import RegistryError, UsageError
from torchbake.oci.manifest import CONFIG, DOCKER, MANIFEST, Manifest
from torchbake.oci.platforms import images_for, platforms_of
from torchbake.oci.reference import Reference
from torchbake.registry.client import Registry

DEFAULT_PLATFORM = "linux/amd64"
_DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"


@dataclass(frozen=True, kw_only=True)
class CodeBase:
    """An image in a registry: its reference with the digest of its manifest, and this manifest."""

    reference: Reference
    manifest: Manifest


def find_base(registry: Registry, reference: Reference, platform: str = "") -> CodeBase:
    """Return the image of a reference; of an index, the image for a platform such as ``linux/arm64``.

    Without a platform it is that for linux/amd64, or the only one. Raises RegistryError if there is no such image, and
    UsageError if a platform must be named.
    """
    manifest = registry.manifest(reference.key)
    if manifest is not None and manifest.is_index:
        manifest = registry.manifest(_entry(manifest, reference, platform))
    if manifest is None:
        raise RegistryError(f"{reference} is not there.", hint="Correct the name, or log in: docker login.")
    kind = manifest.config.media_type if manifest.media_type in (MANIFEST, DOCKER) else manifest.media_type
    if kind not in (CONFIG, _DOCKER_CONFIG):
        raise UsageError(f"{reference} is not an image of containers, but {kind}.", hint="Name an image.")
    return CodeBase(reference=replace(reference, digest=manifest.digest), manifest=manifest)


def _entry(index: Manifest, reference: Reference, platform: str) -> str:
    """Return the digest of an image of an index. The first one for a platform has the compression that all can read."""
    there = platforms_of(index)
    name = platform or (there[0] if len(there) == 1 else DEFAULT_PLATFORM)
    return images_for(index, name, name=str(reference))[0].digest
