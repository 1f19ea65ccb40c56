"""What a registry served, as plain facts: its answer for a tag, the image behind it, the releases of an image. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchbake.core.digest import short_digest
from torchbake.core.problem import Problem
from torchbake.oci.labels import ID
from torchbake.oci.tag_names import ImmutableTag
from torchbake.release.record import Record


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A blob as a manifest describes it. ``found``: the bytes that the registry has of it; None: it is not there."""

    digest: str
    size: int
    found: int | None


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image as a registry serves it. ``config_problem``: why its platform and labels are not known.

    ``digest`` is what it is pulled by: of an index, that of its image for linux/amd64.
    """

    digest: str
    platforms: tuple[str, ...]
    labels: Mapping[str, str]
    pieces: tuple[Piece, ...]
    config_problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a registry served for a tag, or a digest. ``digest`` is None where there is no such tag.

    ``answer_problem``: why it is not known (no answer, or a refusal). ``manifest_problem``: how its manifest is not
    what it should be.
    """

    tag: str
    digest: str | None = None
    image: Image | None = None
    answer_problem: Problem | None = None
    manifest_problem: Problem | None = None

    @property
    def who(self) -> str:
        """The image that the tag points at, by its label and digest."""
        name = self.image.labels.get(ID, "") if self.image else ""
        return f"{name or 'an image that is not ours'} ({short(self.digest)})"


@dataclass(frozen=True, kw_only=True)
class Attached:
    """An artifact attached to an image, as its tag serves it. ``digest`` is None where there is no such tag.

    ``subject`` is the digest of the image that it names, ``data`` what it says. ``problem``: why that is not known.
    """

    digest: str | None = None
    subject: str = ""
    data: bytes = b""
    problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class Revision:
    """An immutable tag and its release record. ``problem``: why the record cannot be read.

    ``attached`` are the artifacts whose tags the registry lists, by name; the record itself is one of them.
    ``referrers`` are the digests of the artifacts that are listed with the image, or why these are not known.
    """

    tag: ImmutableTag
    served: Served
    record: Record | None = None
    problem: Problem | None = None
    attached: Mapping[str, Attached] = field(default_factory=dict)
    referrers: frozenset[str] | Problem = frozenset()

    @property
    def digest(self) -> str | None:
        """What was released: the record's word comes before what the tag points at now."""
        return self.record.digest if self.record else self.served.digest

    @property
    def name(self) -> str:
        return f"{self.tag} ({short(self.digest)})"


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """What a repository serves of one image: its rolling tags, and its revisions, oldest first.

    ``went_back``: somebody has gone back from the newest revision. ``list_problem``: why the registry does not list
    tags; then no revision is known.
    """

    repository: str
    tags: Mapping[str, Served]
    revisions: tuple[Revision, ...] = ()
    went_back: bool = False
    list_problem: Problem | None = None


@dataclass(frozen=True, kw_only=True)
class Signatures:
    """What was found of signatures: by digest, why it does not hold (None: it does). ``problem``: why nobody asked."""

    problems: Mapping[str, Problem | None] = field(default_factory=dict)
    problem: Problem | None = None


def short(digest: str | None) -> str:
    """A digest in a sentence, where there may be none."""
    return short_digest(digest or "nothing")
