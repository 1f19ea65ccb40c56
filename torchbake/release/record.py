"""A release record: what was released, moved and known then, as JSON attached to the image in its registry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.checks.verdict import Outcome
from torchbake.oci.labels import ID, INPUTS
from torchbake.oci.manifest import Manifest, UnsoundError, shown
from torchbake.oci.tag_names import RECORD, record_tag
from torchbake.registry.artifact import Artifact, put_artifact, read_artifact
from torchbake.registry.client import Registry

ARTIFACT = "application/vnd.torchbake.release.v1+json"


class Judgement(BaseModel):
    """The verdict that an image was released with: its suite, and how many checks ended how."""

    model_config = ConfigDict(frozen=True)

    suite: str
    started: str
    outcome: Outcome
    counts: Mapping[str, int]
    not_run: Mapping[str, str] = Field(default_factory=dict)


class Moved(BaseModel):
    """A rolling tag, and the digests that it pointed at before (None: it was not there) and after."""

    model_config = ConfigDict(frozen=True)

    tag: str
    before: str | None
    after: str


NOT_SIGNED = "not-run"  # and the reason


class Record(BaseModel):
    """One release, written once: before its rolling tags move. They say themselves whether it is finished.

    ``rolling`` are the rolling tags of the image, with where they pointed when this was written; ``held_back`` are the
    tags that stayed where they were. ``state`` is in records of earlier versions alone, which wrote each record twice.
    ``listed``: the registry lists the artifacts with the image, itself or by a tag; earlier versions do not say it.
    ``waived`` are checks that did not pass, with the reason that somebody gave. ``size`` is the compressed bytes of all
    layers, of an index those of its first image; ``labels`` are the image's own, its versions among them. ``attached``
    are the digests of the artifacts attached to it by name; ``signature`` says how all of them and the image are
    signed, or why they are not.
    """

    model_config = ConfigDict(frozen=True)

    format: int = 1
    state: Literal["begun", "released"] | None = None
    id: str
    tag: str
    digest: str
    inputs: str
    released: str
    size: int = Field(ge=0, lt=2**63)
    layers: int = Field(ge=0, lt=2**63)
    labels: Mapping[str, str]
    rolling: tuple[Moved, ...]
    held_back: Mapping[str, str] = Field(default_factory=dict)
    verdict: Judgement | None = None
    waived: Mapping[str, str] = Field(default_factory=dict)
    attached: Mapping[str, str] = Field(default_factory=dict)
    listed: bool | None = None
    signature: str = ""

    @property
    def is_signed(self) -> bool:
        """Whether it says so, which proves nothing."""
        return bool(self.signature) and not self.signature.startswith(NOT_SIGNED)

    def text(self) -> str:
        return self.model_dump_json(indent=2, exclude=None if self.state else {"state"}) + "\n"

    def flaw(self, tag: str, digest: str, labels: Mapping[str, str]) -> str:
        """How it is not a record of the image under an immutable tag; empty where it is one."""
        told = {"tag": self.tag, "digest": self.digest, "id": self.id, "inputs": self.inputs, "labels": self.labels}
        true = {"tag": tag, "digest": digest, "id": labels.get(ID), "inputs": labels.get(INPUTS, ""), "labels": labels}
        wrong = next((key for key, value in told.items() if value != true[key]), "")
        if wrong in ("", "labels"):
            return wrong and "its record has other labels than the image"
        return f"its record says that its {wrong} is {told[wrong] or 'none'}"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A record in a registry, and the digest by which it is signed."""

    record: Record
    digest: str


def find_record(registry: Registry, tag: str) -> Found | None:
    """The record of an immutable tag; None where there is none. Raises UnsoundError for one that is broken."""
    artifact = read_artifact(registry, tag, RECORD)
    if artifact is None:
        return None
    manifest, data = artifact
    return Found(record=parse_record(data, f"{registry.repository}:{record_tag(tag)}"), digest=manifest.digest)


def read_record(registry: Registry, tag: str) -> Record | None:
    """The same, without its digest."""
    known = find_record(registry, tag)
    return known.record if known else None


def record_of(registry: Registry, tag: str, digest: str) -> Found | None:
    """The record of the very image of a digest under an immutable tag; a broken one, or another image's, is none."""
    try:
        known = find_record(registry, tag)
    except UnsoundError:
        return None
    return known if known and (known.record.tag, known.record.digest) == (tag, digest) else None


def parse_record(data: bytes, where: str) -> Record:
    """Raises UnsoundError, which names ``where`` it is from."""
    try:
        return Record.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        raise UnsoundError(f"{where} is not a release record: {shown(problem)}.") from None


def write_record(
    registry: Registry, record: Record, subject: Manifest, sign: Callable[[str], None] = lambda digest: None
) -> str:
    """Attach it to its image; its digest, by which it is signed before its tag shows it."""
    artifact = Artifact(name=RECORD, media_type=ARTIFACT, text=record.text(), created=record.released)
    manifest = put_artifact(registry, artifact, subject)
    sign(manifest.digest)
    registry.put(manifest, record_tag(record.tag))
    return manifest.digest
