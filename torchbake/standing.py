"""What a repository holds of an image: its revisions and rolling tags; and what a release would do to them. Pure.

An immutable tag is the image's own tag and a revision, ``2.10.0-cuda12.8-cudnn9-runtime-debian12-r3``: written once.
All other tags roll, the image's own tag first of all: that one says which revision is the current one.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from torchbake.labels import ID, INPUTS, LABEL, VERSION_LABEL

_IMMUTABLE = re.compile(r"(?P<name>.+)-r(?P<revision>0|[1-9][0-9]*)")

Action = Literal["release", "finish", "nothing", "held"]


@dataclass(frozen=True, kw_only=True, order=True)
class ImmutableTag:
    """``<name>-r<revision>``; of one image, ordered by revision."""

    name: str
    revision: int

    def __str__(self) -> str:
        return f"{self.name}-r{self.revision}"


def parse_immutable(tag: str) -> ImmutableTag | None:
    """None for a tag that rolls."""
    match = _IMMUTABLE.fullmatch(tag)
    return ImmutableTag(name=match["name"], revision=int(match["revision"])) if match else None


def revisions_of(name: str, tags: Iterable[str]) -> tuple[ImmutableTag, ...]:
    """The immutable tags of an image, oldest first."""
    return tuple(sorted(tag for tag in map(parse_immutable, tags) if tag and tag.name == name))


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Of all images that a rolling tag could name, the one with the highest rank holds it."""

    versions: tuple[Version, ...]

    def __lt__(self, other: "Rank") -> bool:
        return self.versions < other.versions


def rank_of(labels: Mapping[str, str]) -> Rank | None:
    """From an image's labels: torch, then CUDA, then cuDNN; an init image's own version. None: not one of ours."""
    release = labels.get(VERSION_LABEL, "")
    if ID not in labels:
        return None
    texts = [labels.get(f"{LABEL}.{part}", "0") for part in ("torch", "cuda", "cudnn")]
    try:
        return Rank(versions=tuple(map(Version, texts if f"{LABEL}.torch" in labels else [release])))
    except InvalidVersion:
        return None


@dataclass(frozen=True, kw_only=True)
class Held:
    """An image in a registry, under one tag: its digest and labels."""

    digest: str
    labels: Mapping[str, str]

    @property
    def inputs(self) -> str:
        return self.labels.get(INPUTS, "")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a repository holds of one image. ``newest`` is its newest revision's image, ``recorded`` whether that has
    a release record: a release without one was not finished. ``rolling`` has every rolling tag that the image should
    hold, with what is there.
    """

    newest_tag: ImmutableTag | None
    newest: Held | None
    recorded: bool
    rolling: Mapping[str, Held | None]


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
    """What is to be done. ``kept``: rolling tags that stay where they are, with the reason.

    ``release``: a new revision; ``finish``: one that was begun before; ``nothing``: it is there; ``held``: it is there,
    and somebody has rolled back from it.
    """

    action: Action
    tag: ImmutableTag
    digest: str
    moves: tuple[Move, ...]
    kept: Mapping[str, str]

    @property
    def due(self) -> tuple[Move, ...]:
        """The moves that change something."""
        return tuple(move for move in self.moves if move.changes)


def decide(name: str, digest: str, labels: Mapping[str, str], standing: Standing) -> Decision:
    """What publishing this image means. ``name`` is its own tag, the first of the standing's rolling tags.

    The same inputs make the same image: nothing is written, and what the registry holds stays. Else the revision after
    the newest one. Raises ValueError where the newest revision cannot be one of this image's.
    """
    inputs = labels.get(INPUTS, "")
    newest, tag = standing.newest, standing.newest_tag
    if newest and newest.labels.get(ID) != labels.get(ID):
        raise ValueError(f"{tag} holds {newest.labels.get(ID) or 'an image of somebody else'}")
    if newest is None or tag is None:
        return _decision("release", ImmutableTag(name=name, revision=0), digest, labels, standing)
    if newest.inputs != inputs or not inputs:
        return _decision("release", ImmutableTag(name=name, revision=tag.revision + 1), digest, labels, standing)
    own = standing.rolling.get(name)
    if standing.recorded and own and own.digest != newest.digest:
        return Decision(action="held", tag=tag, digest=newest.digest, moves=(), kept={})
    decision = _decision("finish", tag, newest.digest, newest.labels, standing)
    if standing.recorded and not decision.due:
        return Decision(action="nothing", tag=tag, digest=newest.digest, moves=decision.moves, kept=decision.kept)
    return decision


def without_moves(decision: Decision, *, recorded: bool) -> Decision:
    """The same without its rolling tags: they are left to a promotion. ``recorded``: its release has ended before."""
    action: Action = "nothing" if decision.action == "finish" and recorded else decision.action
    kept = {move.tag: "left to `promote --finish`" for move in decision.due}
    return replace(decision, action=action, moves=(), kept={**decision.kept, **kept})


def _decision(
    action: Action, tag: ImmutableTag, digest: str, labels: Mapping[str, str], standing: Standing
) -> Decision:
    moves, kept = moves_to(digest, labels, standing.rolling)
    return Decision(action=action, tag=tag, digest=digest, moves=moves, kept=kept)


def moves_to(
    digest: str, labels: Mapping[str, str], rolling: Mapping[str, Held | None]
) -> tuple[tuple[Move, ...], dict[str, str]]:
    """The moves of rolling tags to an image, in their order, and which are kept and why.

    An older release never takes a tag from a newer one, and nobody takes a tag from an image that is not ours.
    """
    moves, kept = [], {}
    for tag, held in rolling.items():
        reason = _why_kept(labels, held)
        if reason:
            kept[tag] = reason
        else:
            moves.append(Move(tag=tag, before=held.digest if held else None, after=digest))
    return tuple(moves), kept


def _why_kept(labels: Mapping[str, str], held: Held | None) -> str:
    if held is None or held.labels.get(ID) == labels.get(ID):
        return ""
    theirs, ours = rank_of(held.labels), rank_of(labels)
    who = held.labels.get(ID, "")
    if theirs is None or ours is None:
        return f"it holds an image that is not ours ({held.digest[:19]})"
    return f"{who} is newer" if ours < theirs else ""


def as_json(decision: Decision) -> dict[str, Any]:
    return {
        "action": decision.action,
        "tag": str(decision.tag),
        "digest": decision.digest,
        "moves": [{"tag": move.tag, "before": move.before, "after": move.after} for move in decision.due],
        "kept": dict(decision.kept),
    }
