"""A release record: what was released, moved and known then, as JSON beside the image in its registry."""

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.artifact import Artifact, artifact_tag, put_artifact, read_artifact
from torchbake.errors import RegistryError
from torchbake.registry import Manifest, Registry
from torchbake.verdict import Outcome

ARTIFACT = "application/vnd.torchbake.release.v1+json"
NAME = "release"
SUFFIX = f".{NAME}"


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


class Record(BaseModel):
    """One release. ``state`` is ``begun`` until its rolling tags are where they belong.

    ``waived`` are checks that did not pass, with the reason that somebody gave. ``size`` is the packed bytes of all
    layers; ``labels`` are the image's own, its versions among them. ``attached`` are the digests of the artifacts
    beside it by name; ``signature`` says how all of them and the image are signed, or why they are not.
    """

    model_config = ConfigDict(frozen=True)

    format: int = 1
    state: Literal["begun", "released"]
    id: str
    tag: str
    digest: str
    inputs: str
    released: str
    size: int
    layers: int
    labels: Mapping[str, str]
    rolling: tuple[Moved, ...]
    kept: Mapping[str, str] = Field(default_factory=dict)
    verdict: Judgement | None = None
    waived: Mapping[str, str] = Field(default_factory=dict)
    attached: Mapping[str, str] = Field(default_factory=dict)
    signature: str = ""

    def text(self) -> str:
        return self.model_dump_json(indent=2) + "\n"


def record_tag(tag: str) -> str:
    """Where the record of an immutable tag is."""
    return artifact_tag(tag, NAME)


def read_record(registry: Registry, tag: str) -> Record | None:
    """The record of an immutable tag; None where there is none. Raises RegistryError for one that is broken."""
    found = read_artifact(registry, tag, NAME)
    return parse_record(found[1], f"{registry.repository}:{record_tag(tag)}") if found else None


def parse_record(data: bytes, where: str) -> Record:
    """Raises RegistryError, which names ``where`` it is from."""
    try:
        return Record.model_validate_json(data)
    except ValidationError as error:
        raise RegistryError(f"{where} is no release record: {error}") from None


def write_record(
    registry: Registry, record: Record, subject: Manifest, sign: Callable[[str], None] = lambda digest: None
) -> None:
    """Put it beside its image. It is signed, by its digest, before its tag shows it."""
    artifact = Artifact(name=NAME, media_type=ARTIFACT, text=record.text(), created=record.released)
    manifest = put_artifact(registry, artifact, subject)
    sign(manifest.digest)
    registry.put(manifest, record_tag(record.tag))
