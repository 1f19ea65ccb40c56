"""Which images a registry does not have as they are today, and why: the rule behind `list --due`.

No engine and no base is needed: a released image says its inputs digest and, in a label, the base in it. On that base
the digest of today's files is the same, or something has changed. What cannot be known makes an image due.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torchbake.core.parallel import side_by_side
from torchbake.errors import LockError, RenderError
from torchbake.oci.labels import BASE_DIGEST, ID
from torchbake.oci.tag_names import ImmutableTag, revisions_of
from torchbake.registry.client import Registry
from torchbake.registry.transport import StatusError
from torchbake.release.decide import Held
from torchbake.release.record import record_of
from torchbake.release.repository_view import Holdings

_SIDE_BY_SIDE = 8  # images that a registry is asked about
_FORBIDDEN = 403  # how some registries answer for a repository that does not exist yet


@dataclass(frozen=True, kw_only=True)
class Release:
    """The newest revision of an image; ``image`` is None where its tag is listed and not served.

    ``recorded``: it has a release record of its own. Then rolling tags are all that may be left to do.
    """

    tag: ImmutableTag
    image: Held | None
    recorded: bool

    @property
    def base(self) -> str:
        """The digest of the base in it; empty where it does not say, as init images."""
        return self.image.labels.get(BASE_DIGEST, "") if self.image else ""


@dataclass(frozen=True, kw_only=True)
class Today:
    """An image as its files say. ``inputs`` is its inputs digest, by the digest of its base; may raise LockError and
    RenderError. ``bases`` are digests of which each counts as the base of today; none: ``doubt`` says why.
    """

    id: str
    base: str
    inputs: Callable[[str], str]
    bases: Sequence[str] = ()
    doubt: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Whether an image is due, and the reason for either."""

    due: bool
    reason: str


def judge(today: Today, release: Release | None) -> Finding:
    """Whether publishing this image would be a new revision, or cannot be known to be none."""
    try:
        reason = _against(today, release)
    except (LockError, RenderError) as error:
        reason = error.message.partition("\n")[0]
    return Finding(due=bool(reason), reason=reason or f"released as {release.tag if release else ''}")


def _against(today: Today, release: Release | None) -> str:
    """Why it is due; empty where it is not."""
    if release is None:
        return "not released yet"
    return _unfit(today, release) or _differs(today, release, release.image.inputs if release.image else "")


def _unfit(today: Today, release: Release) -> str:
    """How it is not a whole release of this image."""
    if release.image is None:
        return f"{release.tag} is listed, but not served"
    if release.image.labels.get(ID) != today.id:
        return f"{release.tag} is not an image of this name"
    return "" if release.recorded else f"the release of {release.tag} was interrupted"


def _differs(today: Today, release: Release, known: str) -> str:
    """What has changed since a release whose inputs digest is ``known``, or may have."""
    if not known or (release.base and today.inputs(release.base) != known):
        return f"its inputs changed since {release.tag}"
    if not today.bases:
        return f"unknown whether its base {today.base} has changed since {release.tag}: {today.doubt}"
    if known in map(today.inputs, today.bases):
        return ""
    what = f"its base {today.base}" if release.base else f"its inputs, or its base {today.base},"
    return f"{what} changed since {release.tag}"


def newest_releases(
    registries: Mapping[str, Registry], wanted: Sequence[tuple[str, str]]
) -> tuple[dict[tuple[str, str], Release], dict[str, str]]:
    """The newest revision of each pair of a repository's name and an own tag; and what was refused, by name.

    Raises RegistryError where a registry does not answer, or wants another login.
    """
    refused: dict[str, str] = {}
    there: dict[str, tuple[str, ...]] = {}
    for name, registry in registries.items():
        try:
            there[name] = registry.tags()
        except StatusError as error:
            if error.status != _FORBIDDEN:
                raise
            refused[name] = error.message
    holdings = {name: Holdings(registry) for name, registry in registries.items()}

    def look(pair: tuple[str, str]) -> Release | None:
        name, own = pair
        return _newest(registries[name], holdings[name], own, there.get(name, ()))

    found = side_by_side(look, wanted, most=_SIDE_BY_SIDE)
    return {pair: release for pair, release in zip(wanted, found, strict=True) if release}, refused


def _newest(registry: Registry, holdings: Holdings, own: str, there: Sequence[str]) -> Release | None:
    revisions = revisions_of(own, there)
    if not revisions:
        return None
    tag = revisions[-1]
    image = holdings.look(str(tag))
    recorded = image is not None and record_of(registry, str(tag), image.digest) is not None
    return Release(tag=tag, image=image, recorded=recorded)
