"""Answers of a registry as values: the image of a tag, the tags and releases of an image. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchbake.core.digest import short_digest
from torchbake.core.problem import Problem
from torchbake.oci.labels import ID
from torchbake.oci.tag_names import ImmutableTag
from torchbake.release.record import Record


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A blob in a manifest. The registry has ``actual_size`` bytes, or None if the blob is missing."""

    digest: str
    size: int
    actual_size: int | None


@dataclass(frozen=True, kw_only=True)
class ServedImage:
    """An image in a registry. ``config_problem``: why its platform and labels are not known.

    ``digest`` is the manifest's; in an index, that of the image for the platform.
    """

    digest: str
    platforms: tuple[str, ...]
    labels: Mapping[str, str]
    pieces: tuple[Piece, ...]
    config_problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class ServedTag:
    """A registry's answer for a tag or a digest. ``digest`` is None if there is no such tag.

    ``answer_problem``: the registry did not answer, or refused. ``manifest_problem``: the manifest is invalid.
    """

    tag: str
    digest: str | None = None
    image: ServedImage | None = None
    answer_problem: Problem | None = None
    manifest_problem: Problem | None = None

    @property
    def who(self) -> str:
        """The image that the tag points at: its label and digest."""
        name = self.image.labels.get(ID, "") if self.image else ""
        return f"{name or 'an image that is not ours'} ({short(self.digest)})"


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """An artifact that is attached to an image. ``digest`` is None if its tag is missing.

    ``subject`` is the digest of its image, ``data`` its content. ``problem``: why these are not known.
    """

    digest: str | None = None
    subject: str = ""
    data: bytes = b""
    problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class Revision:
    """An immutable tag and its release record. ``problem``: why the record cannot be read.

    ``attachments`` are the artifacts with a tag, by name, including the record. The list of ``referrers`` of the image
    has digests of artifacts; it can be a problem.
    """

    tag: ImmutableTag
    tag_answer: ServedTag
    record: Record | None = None
    problem: Problem | None = None
    attachments: Mapping[str, Attachment] = field(default_factory=dict)
    referrers: frozenset[str] | Problem = frozenset()

    @property
    def digest(self) -> str | None:
        """The released digest: that of the record, else of the tag, which can have moved."""
        return self.record.digest if self.record else self.tag_answer.digest

    @property
    def name(self) -> str:
        return f"{self.tag} ({short(self.digest)})"


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """All tags of one image in a repository: its rolling tags, and its revisions, oldest first.

    ``went_back``: the newest revision was rolled back. ``list_problem``: the registry does not list tags, so no
    revision is known.
    """

    repository: str
    tags: Mapping[str, ServedTag]
    revisions: tuple[Revision, ...] = ()
    went_back: bool = False
    list_problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class Signatures:
    """Results of the verification by digest; None: it is valid. ``problem``: why nothing was verified."""

    problems: Mapping[str, Problem | None] = field(default_factory=dict)
    problem: Problem | None = None


def short(digest: str | None) -> str:
    """Shorten a digest for a message; there may be none."""
    return short_digest(digest or "nothing")
