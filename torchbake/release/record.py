"""Release records: the facts of one release, as JSON attached to the image in its registry."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.checks.verdict import Outcome
from torchbake.core.file_format import FORMATS, UPGRADE, why_too_new
from torchbake.core.json_text import NotJsonError, read_object
from torchbake.oci.labels import ID, INPUTS
from torchbake.oci.manifest import Manifest, UnsoundError, quote_value
from torchbake.oci.tag_names import RECORD, record_tag
from torchbake.registry.artifact import Artifact, put_artifact, read_artifact
from torchbake.registry.client import Registry

ARTIFACT = "application/vnd.torchbake.release.v1+json"


class NewerRecordError(UnsoundError):
    """A record of a newer torchbake."""


class RecordedVerdict(BaseModel):
    """The verdict of a released image: its suite, and the number of checks by outcome."""

    model_config = ConfigDict(frozen=True)

    suite: str
    started: str
    outcome: Outcome
    counts: Mapping[str, int]
    not_run: Mapping[str, str] = Field(default_factory=dict)


class TagMove(BaseModel):
    """A move of a rolling tag from a digest (None if there was no such tag) to another."""

    model_config = ConfigDict(frozen=True)

    tag: str
    before: str | None
    after: str


class PlatformRelease(BaseModel):
    """The release of one platform that an index has: its immutable tag, and the digest under it."""

    model_config = ConfigDict(frozen=True)

    tag: str
    digest: str


NOT_SIGNED = "not-run"  # before the reason


class Record(BaseModel):
    """One release. The record is written once, before the rolling tags move, so it does not tell if they have moved.

    - ``state``: only in records of earlier versions, which wrote each record twice
    - ``size``: the compressed bytes of all layers, for an index those of its first image
    - ``labels``: the image's labels, with its versions
    - ``rolling``, ``held_back``: the planned moves of rolling tags, and the reasons for tags that stay
    - ``waived``: the checks that failed, with the reasons why somebody accepts them
    - ``attached``: the digests of the image's artifacts, by name
    - ``listed``: the registry or a tag lists the artifacts with the image; earlier versions do not have this
    - ``platforms``: only for an index of several platforms, the release of each, which has the verdict and the waivers
    - ``signature``: the kind of the signature of the image and its artifacts, or the reason why there is none
    """

    model_config = ConfigDict(frozen=True)

    format: int = FORMATS["release record"]
    state: Literal["begun", "released"] | None = None
    id: str
    tag: str
    digest: str
    inputs: str
    released: str
    size: int = Field(ge=0, lt=2**63)
    layers: int = Field(ge=0, lt=2**63)
    labels: Mapping[str, str]
    rolling: tuple[TagMove, ...]
    held_back: Mapping[str, str] = Field(default_factory=dict)
    verdict: RecordedVerdict | None = None
    waived: Mapping[str, str] = Field(default_factory=dict)
    attached: Mapping[str, str] = Field(default_factory=dict)
    listed: bool | None = None
    platforms: Mapping[str, PlatformRelease] = Field(default_factory=dict)
    signature: str = ""

    @property
    def is_signed(self) -> bool:
        """Check if the record claims to be signed, which proves nothing."""
        return bool(self.signature) and not self.signature.startswith(NOT_SIGNED)

    def text(self) -> str:
        unused = {name for name in ("state", "platforms") if not getattr(self, name)}
        return self.model_dump_json(indent=2, exclude=unused) + "\n"

    def flaw(self, tag: str, digest: str, labels: Mapping[str, str]) -> str:
        """Return the difference between the record and the image under an immutable tag; "" if they agree."""
        actual = {"tag": tag, "digest": digest, "id": labels.get(ID), "inputs": labels.get(INPUTS, "")}
        for key, value in actual.items():
            if getattr(self, key) != value:
                return f"its record says that its {key} is {getattr(self, key) or 'none'}"
        return "" if self.labels == labels else "its record has other labels than the image"


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """A record in a registry, and the digest of its artifact, which is signed."""

    record: Record
    digest: str


def find_record(registry: Registry, tag: str) -> StoredRecord | None:
    """Read the record of an immutable tag; None if it has none. Raises UnsoundError if the record is broken."""
    artifact = read_artifact(registry, tag, RECORD)
    if artifact is None:
        return None
    manifest, data = artifact
    return StoredRecord(record=parse_record(data, f"{registry.repository}:{record_tag(tag)}"), digest=manifest.digest)


def read_record(registry: Registry, tag: str) -> Record | None:
    """Read the record of an immutable tag without its digest, as `find_record`."""
    stored = find_record(registry, tag)
    return stored.record if stored else None


def record_of(registry: Registry, tag: str, digest: str) -> StoredRecord | None:
    """Read the record of an immutable tag; None if there is none, it is broken, or it belongs to another digest.

    Raises NewerRecordError.
    """
    try:
        stored = find_record(registry, tag)
    except NewerRecordError:
        raise
    except UnsoundError:
        return None
    return stored if stored and (stored.record.tag, stored.record.digest) == (tag, digest) else None


def parse_record(data: bytes, where: str) -> Record:
    """Parse a record. Raises UnsoundError, which names the place ``where``; NewerRecordError is one."""
    with suppress(NotJsonError):  # which the model reports too
        if newer := why_too_new("release record", read_object(data).get("format")):
            raise NewerRecordError(f"{where}: {newer}.", hint=UPGRADE)
    try:
        return Record.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        raise UnsoundError(f"{where} is not a release record: {quote_value(problem)}.") from None


def write_record(
    registry: Registry, record: Record, subject: Manifest, sign: Callable[[str], None] = lambda digest: None
) -> str:
    """Attach a record to its image and return its digest. The digest is signed before the record's tag is set."""
    artifact = Artifact(name=RECORD, media_type=ARTIFACT, text=record.text(), created=record.released)
    manifest = put_artifact(registry, artifact, subject)
    sign(manifest.digest)
    registry.put(manifest, record_tag(record.tag))
    return manifest.digest
