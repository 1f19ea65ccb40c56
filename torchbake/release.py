"""A release record: what was released, moved and known then, as JSON beside the image in its registry.

It is an OCI artifact (image specification 1.1, "artifactType" and "subject") under the tag ``<immutable tag>.release``,
so that registries without the referrers API serve it too.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.errors import RegistryError
from torchbake.registry import MANIFEST, Blob, Manifest, Registry, sha256
from torchbake.verdict import Outcome

ARTIFACT = "application/vnd.torchbake.release.v1+json"
SUFFIX = ".release"
_EMPTY = b"{}"  # the empty descriptor of the image specification
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


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
    layers; ``labels`` are the image's own, its versions among them.
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

    def text(self) -> str:
        return self.model_dump_json(indent=2) + "\n"


def record_tag(tag: str) -> str:
    """Where the record of an immutable tag is."""
    return f"{tag}{SUFFIX}"


def read_record(registry: Registry, tag: str) -> Record | None:
    """The record of an immutable tag; None where there is none. Raises RegistryError for one that is broken."""
    manifest = registry.manifest(record_tag(tag))
    if manifest is None:
        return None
    try:
        return Record.model_validate_json(registry.read(manifest.layers[0]))
    except (ValidationError, IndexError) as error:
        raise RegistryError(f"{registry.repository}:{record_tag(tag)} is no release record: {error}") from None


def write_record(registry: Registry, record: Record, subject: Manifest) -> None:
    """Put it beside its image."""
    data = record.text().encode()
    for content in (data, _EMPTY):
        _send(registry, content)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT,
        "config": {"mediaType": _EMPTY_TYPE, "digest": sha256(_EMPTY), "size": len(_EMPTY)},
        "layers": [{"mediaType": ARTIFACT, "digest": sha256(data), "size": len(data)}],
        "subject": {"mediaType": subject.media_type, "digest": subject.digest, "size": len(subject.data)},
        "annotations": {"org.opencontainers.image.created": record.released},
    }
    packed = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    registry.put(Manifest(data=packed, media_type=MANIFEST), record_tag(record.tag))


def _send(registry: Registry, data: bytes) -> None:
    blob = Blob(digest=sha256(data), size=len(data))
    if registry.has(blob):
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        registry.upload(blob, Path(file.name))
