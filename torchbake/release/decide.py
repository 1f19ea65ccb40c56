"""What a repository holds of an image: its revisions and rolling tags; and what a release would do to them. Pure.

All tags but the immutable ones roll, the image's own tag first of all: that one says which revision is the current one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from packaging.version import Version

from torchbake.core.digest import short_digest
from torchbake.oci.labels import ID, INPUTS, LABEL, VERSION_LABEL
from torchbake.oci.tag_names import ImmutableTag

Action = Literal["release", "finish", "nothing", "held"]


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Of all images that a rolling tag could name, the one with the highest rank holds it."""

    versions: tuple[Version, ...]

    def __lt__(self, other: "Rank") -> bool:
        return self.versions < other.versions


def rank_of(labels: Mapping[str, str]) -> Rank | None:
    """From an image's labels: torch, then CUDA, then cuDNN; an init image's own version. None: not one of ours.

    As precise as a matrix is, which ranks its images likewise: torch without what a wheel adds to it (`+cu126`), CUDA
    to the minor version, cuDNN to the major.
    """
    if ID not in labels:
        return None
    texts = [labels.get(f"{LABEL}.{part}", "0") for part in ("torch", "cuda", "cudnn")]
    try:
        if f"{LABEL}.torch" not in labels:
            return Rank(versions=(Version(labels.get(VERSION_LABEL, "")),))
        torch, cuda, cudnn = map(Version, texts)
    except ValueError:  # no version, or one of more digits than Python reads
        return None
    return Rank(versions=(Version(torch.public), Version(f"{cuda.major}.{cuda.minor}"), Version(f"{cudnn.major}")))


@dataclass(frozen=True, kw_only=True)
class Held:
    """An image in a registry, under one tag: its digest and labels.

    ``config`` is the digest of its config, and ``compression`` names the compressions of its layers.
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
    """What a repository holds of one image. ``newest`` is its newest revision's image, ``recorded`` whether that has
    a release record of its own. ``rolling`` has every rolling tag that the image should hold, with what is there.

    ``went_back``: somebody has gone back from the newest revision. ``taken`` is the highest revision that was ever set,
    also where only an artifact of it is left.
    """

    newest_tag: ImmutableTag | None
    newest: Held | None
    recorded: bool
    rolling: Mapping[str, Held | None]
    went_back: bool = False
    taken: int = -1

    def next_tag(self, name: str) -> ImmutableTag:
        newest = self.newest_tag.revision if self.newest_tag else -1
        return ImmutableTag(name=name, revision=max(newest, self.taken) + 1)

    def is_held(self, own: Held | None) -> bool:
        """Check that somebody went back from the newest revision, and nobody forward since.

        ``own`` is the image that the own tag points at.
        """
        if own is None or self.newest is None or own.digest == self.newest.digest:
            return False
        return self.went_back


@dataclass(frozen=True, kw_only=True)
class Move:
    """A rolling tag to set: what it points at before (None: nothing) and after."""

    tag: str
    before: str | None
    after: str

    @property
    def changes(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is to be done. ``held_back``: rolling tags that stay where they are, with the reason. ``left``: the moves
    are left to a promotion.

    ``release``: a new revision; ``finish``: one that was begun before; ``nothing``: it is there; ``held``: it is there,
    and somebody has rolled back from it.
    """

    action: Action
    tag: ImmutableTag
    digest: str
    moves: tuple[Move, ...]
    held_back: Mapping[str, str]
    left: bool = False

    @property
    def due(self) -> tuple[Move, ...]:
        """The moves that change something, unless they are left to a promotion."""
        return () if self.left else tuple(move for move in self.moves if move.changes)


def decide(name: str, digest: str, labels: Mapping[str, str], standing: Standing) -> Decision:
    """What publishing this image means. ``name`` is its own tag, the first of the standing's rolling tags.

    The same inputs make the same image: what the registry holds stays, or is finished. Labels are anybody's to write:
    whether it may be finished is for `verification` to say, where its digest is another one. Other inputs are the
    revision after the newest one. Raises ValueError where the newest revision cannot be one of this image's.
    """
    inputs = labels.get(INPUTS, "")
    newest, tag = standing.newest, standing.newest_tag
    if newest and newest.labels.get(ID) != labels.get(ID):
        raise ValueError(f"{tag} holds {newest.labels.get(ID) or 'an image of somebody else'}")
    if newest is None or tag is None:
        return _decision("release", standing.next_tag(name), digest, labels, standing)
    if newest.inputs != inputs or not inputs:
        return _decision("release", standing.next_tag(name), digest, labels, standing)
    if standing.is_held(standing.rolling.get(name)):
        return Decision(action="held", tag=tag, digest=newest.digest, moves=(), held_back={})
    decision = _decision("finish", tag, newest.digest, newest.labels, standing)
    if standing.recorded and not decision.due:
        return Decision(
            action="nothing", tag=tag, digest=newest.digest, moves=decision.moves, held_back=decision.held_back
        )
    return decision


def without_moves(decision: Decision, *, recorded: bool) -> Decision:
    """The same without its rolling tags: they are left to a promotion. ``recorded``: its release has a record."""
    action: Action = "nothing" if decision.action == "finish" and recorded else decision.action
    left = {move.tag: "left to `promote --finish`" for move in decision.due}
    return replace(decision, action=action, left=True, held_back={**decision.held_back, **left})


def _decision(
    action: Action, tag: ImmutableTag, digest: str, labels: Mapping[str, str], standing: Standing
) -> Decision:
    moves, held_back = moves_to(digest, labels, standing.rolling)
    return Decision(action=action, tag=tag, digest=digest, moves=moves, held_back=held_back)


def moves_to(
    digest: str, labels: Mapping[str, str], rolling: Mapping[str, Held | None]
) -> tuple[tuple[Move, ...], dict[str, str]]:
    """The moves of rolling tags to an image, in their order, and which are held back and why.

    An older release never takes a tag from a newer one, and nobody takes a tag from an image that is not ours.
    """
    moves, held_back = [], {}
    for tag, held in rolling.items():
        reason = _why_held_back(labels, held)
        if reason:
            held_back[tag] = reason
        else:
            moves.append(Move(tag=tag, before=held.digest if held else None, after=digest))
    return tuple(moves), held_back


def _why_held_back(labels: Mapping[str, str], held: Held | None) -> str:
    if held is None or held.labels.get(ID) == labels.get(ID):
        return ""
    theirs, ours = rank_of(held.labels), rank_of(labels)
    who = held.labels.get(ID, "")
    if theirs is None or ours is None:
        return f"it holds an image that is not ours ({short_digest(held.digest)})"
    return f"{who} is newer" if ours < theirs else ""


def as_json(decision: Decision) -> dict[str, Any]:
    return {
        "action": decision.action,
        "tag": str(decision.tag),
        "digest": decision.digest,
        "moves": [{"tag": move.tag, "before": move.before, "after": move.after} for move in decision.due],
        "held_back": dict(decision.held_back),
    }
