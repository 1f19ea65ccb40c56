"""The names of tags that are not rolling ones: immutable tags, and those of what is attached to an image. Pure.

An immutable tag is the image's own tag and a revision, ``2.10.0-cuda12.8-cudnn9-runtime-debian12-r3``: written once.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

SBOM, PROVENANCE, RECORD = "sbom", "provenance", "release"
ARTIFACTS = (SBOM, PROVENANCE)  # what is said of an image; its release record is attached too
HELD = "held"  # somebody has gone back from this release
_COSIGN = ("sig", "att")  # cosign's own, for each digest
_IMMUTABLE = re.compile(r"(?P<name>.+)-r(?P<revision>0|[1-9][0-9]{0,17})")


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


def recorded_of(name: str, tags: Iterable[str]) -> tuple[ImmutableTag, ...]:
    """The same, with those of which only the release record is left: none of them is ever set again."""
    return revisions_of(name, _with_owners(tags, (RECORD,)))


def taken_of(name: str, tags: Iterable[str]) -> tuple[ImmutableTag, ...]:
    """The revisions of an image of which any tag is there: a registry may refuse to have one of them set again."""
    return revisions_of(name, _with_owners(tags, (*ARTIFACTS, RECORD, HELD)))


def _with_owners(tags: Iterable[str], names: Iterable[str]) -> set[str]:
    """The tags, and those of the images to which tags of these artifacts belong."""
    there = set(tags)
    return there | {tag.removesuffix(f".{name}") for name in names for tag in there if tag.endswith(f".{name}")}


def artifact_tag(tag: str, name: str) -> str:
    """Where an immutable tag's artifact is."""
    return f"{tag}.{name}"


def record_tag(tag: str) -> str:
    """Where an immutable tag's release record is."""
    return artifact_tag(tag, RECORD)


def reserved(text: str) -> str:
    """Why a tag, or a name that may end one, cannot be a rolling tag; empty where it can."""
    found = parse_immutable(f"x-{text}")
    if found:
        return f"ends in -r{found.revision}, as immutable tags alone do"
    end = next((name for name in (*ARTIFACTS, RECORD, HELD, *_COSIGN) if text.endswith(f".{name}")), "")
    return f"ends in .{end}, as what is attached to a release does" if end else ""
