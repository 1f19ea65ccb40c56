"""Ask a registry for the abilities that a release needs, without writing to it.

The distribution API cannot tell some of them: then the answer says so.
"""

from dataclasses import dataclass

from torchbake.errors import RegistryError
from torchbake.oci.manifest import sha256
from torchbake.oci.tag_names import RECORD
from torchbake.registry.artifact import IMAGE_CONFIG
from torchbake.registry.client import Registry

_NOT_YET = "not known until the first release"


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """The abilities of one repository, in words. For ``push`` an upload was started and cancelled."""

    push: str
    artifacts: str
    referrers: str
    immutable_tags: str


def probe(registry: Registry) -> Abilities:
    """Ask the registry. Raises RegistryError if it does not answer, or this login may not push."""
    try:
        registry.try_upload()
    except RegistryError as error:
        raise RegistryError(
            f"{registry.repository} takes no upload: {error.message}",
            hint=error.hint or "Does the repository exist, and may this login push to it?",
        ) from None
    tags = registry.tags()
    return Abilities(
        push="yes",
        artifacts=_artifacts(registry, tags),
        referrers=_referrers(registry, is_new=not tags),
        immutable_tags="not known: registries do not say. No tag is written twice, but for rolling ones",
    )


def _artifacts(registry: Registry, tags: tuple[str, ...]) -> str:
    """Say if the registry takes manifests of artifacts: the record of an earlier release shows it."""
    record = next((tag for tag in reversed(tags) if tag.endswith(f".{RECORD}")), None)
    manifest = registry.manifest(record) if record else None
    if manifest is None:
        return f"{_NOT_YET}. If the registry refuses them, they are sent with the config of an image"
    as_image = manifest.config.media_type == IMAGE_CONFIG
    return f"yes, as {record} shows" if not as_image else f"no: sent with the config of an image, as {record} was"


def _referrers(registry: Registry, *, is_new: bool) -> str:
    if registry.referrers(sha256(b"")) is not None:
        return "yes"
    # A registry may give this answer for each request about a repository that does not exist.
    return _NOT_YET if is_new else "no: a tag sha256-<digest of the image> lists the artifacts"
