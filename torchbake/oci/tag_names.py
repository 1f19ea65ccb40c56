"""Names of tags that do not roll: immutable tags, tags of artifacts attached to an image, tags of code. Pure.

An immutable tag is the image's own tag and a revision, ``2.10.0-cuda12.8-cudnn9-runtime-debian12-r3``: written once. A
tag of code has the day of its push and the beginning of the image's digest: ``code-20261128-0123456789ab``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime

SBOM, PROVENANCE, RECORD = "sbom", "provenance", "release"
ARTIFACTS = (SBOM, PROVENANCE)  # a release record is attached too
HOLD_SUFFIX = "held"  # somebody rolled back from this release
_COSIGN = ("sig", "att")  # cosign's own, for each digest
_IMMUTABLE = re.compile(r"(?P<name>.+)-r(?P<revision>0|[1-9][0-9]{0,17})")
_CODE_PREFIX = "code-"
_CODE = re.compile(rf"{_CODE_PREFIX}(?P<day>[0-9]{{8}})-(?P<digits>[0-9a-f]{{12}})")


@dataclass(frozen=True, kw_only=True, order=True)
class CodeTag:
    """The tag of an image with code: the day of its push by UTC, and the first 12 digits of its digest."""

    day: date
    digits: str

    def __str__(self) -> str:
        return f"{_CODE_PREFIX}{self.day:%Y%m%d}-{self.digits}"


def parse_code(tag: str) -> CodeTag | None:
    """Parse the tag of an image with code; None for any other tag."""
    match = _CODE.fullmatch(tag)
    try:
        return CodeTag(day=datetime.strptime(match["day"], "%Y%m%d").date(), digits=match["digits"]) if match else None
    except ValueError:  # no such day
        return None


@dataclass(frozen=True, kw_only=True, order=True)
class ImmutableTag:
    """``<name>-r<revision>``. The tags of one image are ordered by revision."""

    name: str
    revision: int

    def __str__(self) -> str:
        return f"{self.name}-r{self.revision}"


def parse_immutable(tag: str) -> ImmutableTag | None:
    """Parse an immutable tag; None for a rolling tag."""
    match = _IMMUTABLE.fullmatch(tag)
    return ImmutableTag(name=match["name"], revision=int(match["revision"])) if match else None


def revisions_of(name: str, tags: Iterable[str]) -> tuple[ImmutableTag, ...]:
    """Return the immutable tags of an image, oldest first."""
    return tuple(sorted(tag for tag in map(parse_immutable, tags) if tag and tag.name == name))


def recorded_of(name: str, tags: Iterable[str]) -> tuple[ImmutableTag, ...]:
    """Return the immutable tags of an image, and those with only a release record left: none is ever set again."""
    return revisions_of(name, _with_owners(tags, (RECORD,)))


def taken_of(name: str, tags: Iterable[str]) -> tuple[ImmutableTag, ...]:
    """Return each revision of an image with any tag left: a registry may refuse to set such a tag again."""
    return revisions_of(name, _with_owners(tags, (*ARTIFACTS, RECORD, HOLD_SUFFIX)))


def _with_owners(tags: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return tags, and the tags of the images to which their artifacts belong."""
    there = set(tags)
    return there | {tag.removesuffix(f".{name}") for name in names for tag in there if tag.endswith(f".{name}")}


def artifact_tag(tag: str, name: str) -> str:
    """Return the tag of an artifact of an immutable tag."""
    return f"{tag}.{name}"


def record_tag(tag: str) -> str:
    """Return the tag of the release record of an immutable tag."""
    return artifact_tag(tag, RECORD)


def reserved_reason(text: str) -> str:
    """Return why a tag, or the end of one, cannot be a rolling tag; empty if it can."""
    tag = parse_immutable(f"x-{text}")
    if tag:
        return f"ends in -r{tag.revision}, as immutable tags alone do"
    if _CODE.fullmatch(text):
        return "has the form of the tags of images with code"
    end = next((name for name in (*ARTIFACTS, RECORD, HOLD_SUFFIX, *_COSIGN) if text.endswith(f".{name}")), "")
    return f"ends in .{end}, as artifacts of a release do" if end else ""
