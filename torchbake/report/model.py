"""The data of the report's page: what each image is, where it is, how big, how it was judged, and what was released."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from torchbake.checks.verdict import Outcome
from torchbake.report.layer_sharing import Breakdown, Stock

Presence = Literal["up-to-date", "out-of-date", "present", "absent", "unknown"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Versions(_Frozen):
    """What is inside; None where an image has none. ``exact``: read from the lock, not from the row."""

    torch: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    python: str | None = None
    exact: bool = False


class Finding(_Frozen):
    """Checks that ended in one way for one reason."""

    reason: str
    checks: tuple[str, ...]


class Checked(_Frozen):
    """A verdict in short. ``counts`` has every outcome."""

    outcome: Outcome
    counts: Mapping[str, int]
    started: str
    seconds: float | None = None
    gpu: str = ""
    failed: tuple[Finding, ...] = ()
    not_run: tuple[Finding, ...] = ()
    waived: tuple[Finding, ...] = ()


class Changed(_Frozen):
    """What a release changed against the one before it, whose tag is ``since``. ``size`` is in compressed bytes."""

    since: str
    digest: str
    same_digest: bool
    size: int
    versions: Mapping[str, tuple[str | None, str | None]]


class Release(_Frozen):
    """The newest release of an image. ``problem``: why its record is not shown.

    ``signature`` is the record's word; ``attached`` are the tags of the attached artifacts, by name, and
    ``packages`` is how many its SBOM lists.
    """

    repository: str
    tag: str
    digest: str
    state: str = ""
    released: str = ""
    rolling: tuple[str, ...] = ()
    checked: Checked | None = None
    waived: Mapping[str, str] = {}
    changed: Changed | None = None
    signature: str = ""
    attached: Mapping[str, str] = {}
    packages: int | None = None
    problem: str = ""
    is_engines: bool = False


class Command(_Frozen):
    """Something to copy, and what it is for."""

    purpose: str
    line: str


class Entry(_Frozen):
    """One image. ``tags`` are most specific first. Sizes are bytes of the engine's image, or else of
    the released one."""

    id: str
    group: str
    repository: str
    flavor: str
    base: str
    versions: Versions
    tags: tuple[str, ...]
    presence: Presence
    remark: str = ""
    digest: str = ""
    uncompressed: int | None = None
    compressed: int | None = None
    on_disk: Breakdown | None = None
    in_registry: Breakdown | None = None
    checked: Checked | None = None
    release: Release | None = None
    commands: tuple[Command, ...] = ()


class Summary(_Frozen):
    """Counts of images; None for what can only be told by an engine, or by a registry, that did not answer."""

    images: int
    present: int | None
    up_to_date: int | None
    tested: int | None
    passed: int | None
    released: int | None
    on_disk: Stock | None
    in_registry: Stock | None


class Catalogue(_Frozen):
    """The page's data. ``engine``: why no engine was asked; empty when one answered. ``made`` is UTC in ISO 8601."""

    format: int = 1
    made: str
    matrix: str
    selected: str
    engine: str
    registry: str
    summary: Summary
    images: tuple[Entry, ...]
