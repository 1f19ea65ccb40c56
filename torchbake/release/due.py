"""Find images that a registry lacks in the form of today's files, with the reasons: the rule of `list --due`.

This needs no engine and no base. The labels of a released image have its inputs digest and its base. If today's files
give another digest on that base, the image has changed. If torchbake cannot know that, the image is due too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torchbake.core.parallel import side_by_side
from torchbake.errors import LockError, RenderError
from torchbake.oci.labels import BASE_DIGEST, ID
from torchbake.oci.tag_names import ImmutableTag, revisions_of
from torchbake.registry.client import Registry
from torchbake.registry.transport import StatusError
from torchbake.release.decide import TagHolder
from torchbake.release.platforms import joined_inputs
from torchbake.release.record import record_of
from torchbake.release.repository_view import Holdings

_SIDE_BY_SIDE = 8  # parallel requests to a registry
_FORBIDDEN = 403  # the answer of some registries for a repository that does not exist yet


@dataclass(frozen=True, kw_only=True)
class NewestRelease:
    """The newest revision of an image. ``image`` is None if the registry lists the tag but does not serve it.

    If it is ``recorded``, a release record exists, and only its rolling tags may still have to move.
    """

    tag: ImmutableTag
    image: TagHolder | None
    recorded: bool

    @property
    def base(self) -> str:
        """The digest of its base; "" if its labels have none, as for init images."""
        return self.image.labels.get(BASE_DIGEST, "") if self.image else ""


@dataclass(frozen=True, kw_only=True)
class Today:
    """An image as today's files describe it.

    The function ``inputs`` returns its inputs digest for the digest of a base, and may raise LockError and RenderError.
    Each digest in ``bases`` counts as today's base; if there is none, ``doubt`` is the reason.
    """

    id: str
    base: str
    inputs: Callable[[str], str]
    bases: Sequence[str] = ()
    doubt: str = ""


@dataclass(frozen=True, kw_only=True)
class DueFinding:
    """The answer for one image, with its reason."""

    due: bool
    reason: str


def judge(today: Today, release: NewestRelease | None) -> DueFinding:
    """Decide if an image is due: if publishing it makes a new revision, or may do so."""
    try:
        reason = (_flaw(today, release) or _change(today, release)) if release else "not released yet"
    except (LockError, RenderError) as error:
        reason = error.message.partition("\n")[0]
    return DueFinding(due=bool(reason), reason=reason or f"released as {release.tag if release else ''}")


def index_flaw(platforms: Mapping[str, NewestRelease | None], index: NewestRelease | None) -> str:
    """Return why an index is not a complete release of the newest releases of all platforms; "" if it is."""
    inputs = {platform: one.image.inputs if one and one.image else "" for platform, one in platforms.items()}
    if index is None:
        return "the index of its platforms is not released"
    if not index.recorded:
        return f"the release of the index {index.tag} was interrupted"
    is_joined = index.image is not None and index.image.inputs == joined_inputs(inputs) != ""
    return "" if is_joined else f"the index {index.tag} has an earlier image of a platform"


def _flaw(today: Today, release: NewestRelease) -> str:
    """Return the reason why a release is not a complete release of this image; "" if it is."""
    if release.image is None:
        return f"{release.tag} is listed, but not served"
    if release.image.labels.get(ID) != today.id:
        return f"{release.tag} is not an image of this name"
    return "" if release.recorded else f"the release of {release.tag} was interrupted"


def _change(today: Today, release: NewestRelease) -> str:
    """Return the possible change since a release; "" if there is none."""
    tag, inputs = release.tag, release.image.inputs if release.image else ""
    if release.base and today.inputs(release.base) != inputs:
        return f"its inputs changed since {tag}"
    if not today.bases:
        return f"unknown whether its base {today.base} has changed since {tag}: {today.doubt}"
    if inputs in map(today.inputs, today.bases):
        return ""
    what = f"its base {today.base}" if release.base else f"its inputs, or its base {today.base},"
    return f"{what} changed since {tag}"


def newest_releases(
    registries: Mapping[str, Registry], names: Sequence[tuple[str, str]]
) -> tuple[dict[tuple[str, str], NewestRelease], dict[str, str]]:
    """Find the newest revision for pairs of a repository's name and an own tag.

    The second result are the messages of repositories that refuse to list tags, by name. Raises RegistryError if a
    registry does not answer, or needs another login.
    """
    refused: dict[str, str] = {}
    tags: dict[str, tuple[str, ...]] = {}
    for name, registry in registries.items():
        try:
            tags[name] = registry.tags()
        except StatusError as error:
            if error.status != _FORBIDDEN:
                raise
            refused[name] = error.message
    holdings = {name: Holdings(registry) for name, registry in registries.items()}

    def newest(pair: tuple[str, str]) -> NewestRelease | None:
        name, own = pair
        revisions = revisions_of(own, tags.get(name, ()))
        if not revisions:
            return None
        tag = revisions[-1]
        image = holdings[name].look(str(tag))
        recorded = image is not None and record_of(registries[name], str(tag), image.digest) is not None
        return NewestRelease(tag=tag, image=image, recorded=recorded)

    releases = side_by_side(newest, names, most=_SIDE_BY_SIDE)
    return {pair: release for pair, release in zip(names, releases, strict=True) if release}, refused
