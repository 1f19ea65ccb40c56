"""Decide what a release changes in a repository, from the revisions and rolling tags there.

All tags roll except the immutable ones. An image's own tag is a rolling tag, and points at its current revision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from packaging.version import Version

from torchbake.core.digest import short_digest
from torchbake.matrix.platforms import id_of_tag
from torchbake.oci.labels import ID, INPUTS, LABEL, VERSION_LABEL
from torchbake.oci.tag_names import ImmutableTag

Action = Literal["release", "finish", "nothing", "held"]
TagRank = tuple[Version, ...]  # a rolling tag belongs to its candidate with the highest rank


def rank_of(labels: Mapping[str, str]) -> TagRank | None:
    """Rank an image by its labels: torch, CUDA and cuDNN, or an init image's version. None for images of others.

    A matrix ranks its images in the same way: torch without its local version (`+cu126`), CUDA up to the minor
    version, cuDNN by the major version.
    """
    if ID not in labels:
        return None
    texts = [labels.get(f"{LABEL}.{part}", "0") for part in ("torch", "cuda", "cudnn")]
    try:
        if f"{LABEL}.torch" not in labels:
            return (Version(labels.get(VERSION_LABEL, "")),)
        torch, cuda, cudnn = map(Version, texts)
    except ValueError:  # not a version, or one with more digits than Python reads
        return None
    return Version(torch.public), Version(f"{cuda.major}.{cuda.minor}"), Version(f"{cudnn.major}")


@dataclass(frozen=True, kw_only=True)
class TagHolder:
    """An image that a tag of a registry points at, with its labels.

    ``config`` is the digest of its config, or "" for an index of several platforms. ``compression`` names the
    compressions of its layers.
    """

    digest: str
    labels: Mapping[str, str]
    config: str = ""
    compression: str = ""

    @property
    def inputs(self) -> str:
        return self.labels.get(INPUTS, "")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The tags of one image in a repository.

    The newest revision is ``newest``; it is ``recorded`` if it has a release record, and ``went_back`` is true if
    somebody has rolled back from it. For each tag that the image should hold, ``rolling`` has its current image. The
    highest revision that was ever set is ``last_revision``, also if only an artifact of it is left.
    """

    newest_tag: ImmutableTag | None
    newest: TagHolder | None
    recorded: bool
    rolling: Mapping[str, TagHolder | None]
    went_back: bool = False
    last_revision: int = -1

    def next_tag(self, name: str) -> ImmutableTag:
        newest = self.newest_tag.revision if self.newest_tag else -1
        return ImmutableTag(name=name, revision=max(newest, self.last_revision) + 1)


@dataclass(frozen=True, kw_only=True)
class Move:
    """A move of a rolling tag from a digest (None if there is no such tag) to another."""

    tag: str
    before: str | None
    after: str

    @property
    def changes(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The work to publish an image.

    - ``release``: write a new revision
    - ``finish``: finish a revision that another run began
    - ``nothing``: the image is released
    - ``held``: the image is released, and somebody has rolled back from it

    The tags ``held_back`` do not move, for these reasons. If ``left``, the moves are left to a promotion.
    """

    action: Action
    tag: ImmutableTag
    digest: str
    moves: tuple[Move, ...]
    held_back: Mapping[str, str]
    left: bool = False

    @property
    def due(self) -> tuple[Move, ...]:
        """The moves that change a tag, unless they are left to a promotion."""
        return () if self.left else tuple(move for move in self.moves if move.changes)


def decide(name: str, digest: str, labels: Mapping[str, str], standing: Standing) -> Decision:
    """Decide how to publish an image with these labels and the own tag ``name``, its first rolling tag.

    Equal inputs make equal images: a revision with the same inputs digest stays, or is finished. Other inputs get the
    next revision. Labels prove nothing, as anybody can write them: if the digests differ, `verification` must agree.
    Raises ValueError if the newest revision is another image's.
    """
    inputs = labels.get(INPUTS, "")
    newest, tag = standing.newest, standing.newest_tag
    # A row may get another platform: then a release of one image is followed by an index, or an index by an image.
    if newest and id_of_tag(newest.labels.get(ID, "")) != id_of_tag(labels.get(ID, "")):
        raise ValueError(f"{tag} holds {newest.labels.get(ID) or 'an image of somebody else'}")
    if newest is None or tag is None or not inputs or newest.inputs != inputs:
        moves, held_back = moves_to(digest, labels, standing.rolling)
        tag = standing.next_tag(name)
        return Decision(action="release", tag=tag, digest=digest, moves=moves, held_back=held_back)
    own = standing.rolling.get(name)
    if standing.went_back and own and own.digest != newest.digest:  # nobody has promoted an image since
        return Decision(action="held", tag=tag, digest=newest.digest, moves=(), held_back={})
    moves, held_back = moves_to(newest.digest, newest.labels, standing.rolling)
    decision = Decision(action="finish", tag=tag, digest=newest.digest, moves=moves, held_back=held_back)
    return replace(decision, action="nothing") if standing.recorded and not decision.due else decision


def without_moves(decision: Decision, *, recorded: bool) -> Decision:
    """Leave the moves of a decision to a promotion. If its release is ``recorded``, it has nothing else to finish."""
    action: Action = "nothing" if decision.action == "finish" and recorded else decision.action
    left = {move.tag: "left to `promote --pending`" for move in decision.due}
    return replace(decision, action=action, left=True, held_back={**decision.held_back, **left})


def moves_to(
    digest: str, labels: Mapping[str, str], rolling: Mapping[str, TagHolder | None]
) -> tuple[tuple[Move, ...], dict[str, str]]:
    """Return the moves of rolling tags to an image, in order, and the reasons for tags that are held back.

    An older release never takes a tag from a newer one, and no release takes a tag from an image of others.
    """
    moves, held_back = [], {}
    for tag, holder in rolling.items():
        reason = _why_held_back(labels, holder)
        if reason:
            held_back[tag] = reason
        else:
            moves.append(Move(tag=tag, before=holder.digest if holder else None, after=digest))
    return tuple(moves), held_back


def _why_held_back(labels: Mapping[str, str], holder: TagHolder | None) -> str:
    # All versions of an init image have one id.
    if holder is None or all(holder.labels.get(key) == labels.get(key) for key in (ID, VERSION_LABEL)):
        return ""
    theirs, ours = rank_of(holder.labels), rank_of(labels)
    if theirs is None or ours is None:
        return f"it holds an image that is not ours ({short_digest(holder.digest)})"
    name = holder.labels.get(ID, "")
    version = f" {theirs[0]}" if name == labels.get(ID) else ""
    return f"{name}{version} is newer" if ours < theirs else ""


def as_json(decision: Decision) -> dict[str, Any]:
    return {
        "action": decision.action,
        "tag": str(decision.tag),
        "digest": decision.digest,
        "moves": [{"tag": move.tag, "before": move.before, "after": move.after} for move in decision.due],
        "held_back": dict(decision.held_back),
    }
