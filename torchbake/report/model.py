"""Data of the report's page: each image's versions, location, size, verdict and release."""

from collections.abc import Mapping
from typing import Literal

from torchbake.checks.verdict import Outcome
from torchbake.report.layer_sharing import Breakdown, Frozen, Stock

Presence = Literal["up-to-date", "out-of-date", "present", "absent", "unknown"]


class Versions(Frozen):
    """Versions in an image; None if it does not have the package. ``exact``: from the lock, not from the row."""

    torch: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    python: str | None = None
    exact: bool = False


class CheckGroup(Frozen):
    """Checks with the same outcome and reason."""

    reason: str
    checks: tuple[str, ...]


class VerdictSummary(Frozen):
    """A summary of a verdict. ``counts`` has every outcome."""

    outcome: Outcome
    counts: Mapping[str, int]
    started: str
    seconds: float | None = None
    gpu: str = ""
    failed: tuple[CheckGroup, ...] = ()
    not_run: tuple[CheckGroup, ...] = ()
    waived: tuple[CheckGroup, ...] = ()


class ReleaseChange(Frozen):
    """Changes of a release since the previous one, whose tag is ``since``. ``size`` is in compressed bytes."""

    since: str
    digest: str
    same_digest: bool
    size: int
    versions: Mapping[str, tuple[str | None, str | None]]


class ReleaseEntry(Frozen):
    """The newest release of an image. ``problem``: why its record is not shown.

    ``signature`` is from the record, ``attached`` are the tags of the attached artifacts by name, and ``packages`` is
    the number of packages in the SBOM.
    """

    repository: str
    tag: str
    digest: str
    state: str = ""
    released: str = ""
    rolling: tuple[str, ...] = ()
    checked: VerdictSummary | None = None
    waived: Mapping[str, str] = {}
    changed: ReleaseChange | None = None
    signature: str = ""
    attached: Mapping[str, str] = {}
    packages: int | None = None
    problem: str = ""
    is_engines: bool = False


class ReportCommand(Frozen):
    """A command to copy, and its purpose."""

    purpose: str
    line: str


class ImageEntry(Frozen):
    """One image. ``tags`` are most specific first. Sizes are bytes of the image in the engine, else of the release."""

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
    checked: VerdictSummary | None = None
    release: ReleaseEntry | None = None
    commands: tuple[ReportCommand, ...] = ()


class ReportSummary(Frozen):
    """Numbers of images; None if the engine or registry that knows a number did not answer."""

    images: int
    present: int | None
    up_to_date: int | None
    tested: int | None
    passed: int | None
    released: int | None
    on_disk: Stock | None
    in_registry: Stock | None


class Catalogue(Frozen):
    """The page's data. ``engine``: why no engine was asked; empty when one answered. ``made`` is UTC in ISO 8601."""

    format: int = 1
    made: str
    matrix: str
    selected: str
    engine: str
    registry: str
    summary: ReportSummary
    images: tuple[ImageEntry, ...]
