"""The images with code in a repository: which there are, and the removal of old ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, TypeAlias

from torchbake.core.parallel import side_by_side
from torchbake.errors import RegistryError
from torchbake.oci.labels import BASE_NAME
from torchbake.oci.manifest import Manifest
from torchbake.oci.tag_names import CodeTag, parse_code
from torchbake.registry.client import Registry
from torchbake.registry.transport import StatusError

_AT_ONCE = 4  # parallel requests
# The answers of registries that delete images and no tags: https://github.com/opencontainers/distribution-spec, end-9
_NO_UNTAG = (400, 404, 405)
_ALLOW = (
    "Allow it: distribution's registry needs `storage.delete.enabled`, others a login with the right to delete; "
    "or set a retention rule for the tags code-* in the registry itself."
)
PruneOutcome: TypeAlias = Literal["deleted", "old", "kept"]


@dataclass(frozen=True, kw_only=True)
class CodeImage:
    """An image with code: its tag, its digest, the image below, and the bytes of the layer of code."""

    tag: CodeTag
    digest: str
    base: str
    size: int


@dataclass(frozen=True, kw_only=True)
class PrunedTag:
    """The tag of an old image with code: it was deleted, is only shown (``old``), or is kept for a reason."""

    tag: CodeTag
    digest: str
    outcome: PruneOutcome
    reason: str = ""


def list_code(registry: Registry) -> tuple[CodeImage, ...]:
    """Return the images with code, the oldest first. Raises RegistryError."""
    tags = _code_tags(registry.tags())
    manifests = side_by_side(lambda tag: registry.manifest(str(tag)), tags, most=_AT_ONCE)
    return tuple(_image(tag, manifest) for tag, manifest in zip(tags, manifests, strict=True) if manifest is not None)


def prune_code(
    registry: Registry, *, days: int, today: date, dry_run: bool, on_end: Callable[[PrunedTag], object] = lambda _: None
) -> tuple[PrunedTag, ...]:
    """Delete the images with code that are older than a number of days, and return their tags, the oldest first.

    ``on_end`` is called for each tag. Raises RegistryError if the registry refuses to delete an image, or deletes
    no tag for another reason than that it deletes images alone.
    """
    tags = registry.tags()
    old = [tag for tag in _code_tags(tags) if (today - tag.day).days > days]
    if not old:
        return ()
    digests = dict(zip(tags, registry.digests(tags), strict=True))
    results = []
    for digest in dict.fromkeys(digests[str(tag)] for tag in old):
        own = [tag for tag in old if digests[str(tag)] == digest]
        for result in _prune(registry, digest or "", own, digests, dry_run=dry_run):
            on_end(result)
            results.append(result)
    return tuple(results)


def _prune(
    registry: Registry, digest: str, own: Sequence[CodeTag], digests: Mapping[str, str | None], *, dry_run: bool
) -> list[PrunedTag]:
    """Delete an image; if other tags than these point at it, only these tags."""
    others = _others(registry, digest, own, digests, dry_run=dry_run)
    reason = f"{others[0]} is the same image" if others else ""
    if dry_run or not digest:  # a tag that has no digest was deleted by somebody else
        return [PrunedTag(tag=tag, digest=digest, outcome="old", reason=reason) for tag in own if digest]
    if others:
        return [_untag(registry, tag, digest, others) for tag in own]
    try:
        registry.delete(digest)
        for name in (name for name in digests if name.startswith(digest.replace(":", "-"))):  # its signatures
            registry.delete(digests[name] or name)
    except StatusError as error:
        raise _refused(registry, own[0], error) from None
    return [PrunedTag(tag=tag, digest=digest, outcome="deleted") for tag in own]


def _others(
    registry: Registry, digest: str, own: Sequence[CodeTag], digests: Mapping[str, str | None], *, dry_run: bool
) -> list[str]:
    """Return the other tags of an image, also tags that were pushed since the list was read."""
    names = {str(tag) for tag in own}
    new = [] if dry_run else [tag for tag in registry.tags() if tag not in digests]
    now = {**digests, **dict(zip(new, registry.digests(new), strict=True))}
    return [tag for tag, where in now.items() if where == digest and tag not in names]


def _untag(registry: Registry, tag: CodeTag, digest: str, others: Sequence[str]) -> PrunedTag:
    """Delete a tag alone. A registry may refuse that, or delete the image: then the other tags are written again."""
    reason = f"{others[0]} is the same image"
    manifest = registry.manifest(digest)
    try:
        registry.delete(str(tag))
    except StatusError as error:
        if error.status not in _NO_UNTAG and "UNSUPPORTED" not in error.codes:
            raise _refused(registry, tag, error) from None
        why = f"{reason}, and this registry deletes no tag alone"
        return PrunedTag(tag=tag, digest=digest, outcome="kept", reason=why)
    for other in others:
        if manifest is not None and registry.digest(other) != digest:
            registry.put(manifest, other)
    return PrunedTag(tag=tag, digest=digest, outcome="deleted", reason=f"the tag alone: {reason}")


def _refused(registry: Registry, tag: CodeTag, error: StatusError) -> RegistryError:
    return RegistryError(f"{registry.repository} does not delete {tag}: {error.message}", hint=_ALLOW)


def _code_tags(tags: Sequence[str]) -> list[CodeTag]:
    return sorted(filter(None, map(parse_code, tags)))


def _image(tag: CodeTag, manifest: Manifest) -> CodeImage:
    annotations = manifest.content.get("annotations")
    base = annotations.get(BASE_NAME, "") if isinstance(annotations, dict) else ""
    size = manifest.layers[-1].size if manifest.layers else 0
    return CodeImage(tag=tag, digest=manifest.digest, base=str(base), size=size)
