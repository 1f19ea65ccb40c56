"""Facts about images from the engine, a registry, the locks and the verdicts, from which the catalogue is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchbake.checks.verdict import Verdict
from torchbake.lock.lockfile import Lock
from torchbake.release.record import Record
from torchbake.report.layer_sharing import Layer


@dataclass(frozen=True, kw_only=True)
class InEngine:
    """An image in the engine. ``stale``: why it would be built again (empty: it is up to date; None: unknown)."""

    digest: str
    labels: Mapping[str, str]
    uncompressed: int
    compressed: int | None
    layers: tuple[Layer, ...]
    stale: str | None


@dataclass(frozen=True, kw_only=True)
class InRegistry:
    """The newest release of an image, and the record of the previous one.

    ``config`` is the digest of its config, which is its id in a classic store. ``packages`` is the number of packages
    in its SBOM; None: the SBOM is missing or invalid. ``current``: the image's own tag points at it.
    """

    repository: str
    tag: str
    digest: str
    layers: tuple[Layer, ...] = ()
    record: Record | None = None
    before: Record | None = None
    packages: int | None = None
    current: bool = True
    problem: str = ""
    config: str = ""

    def is_engines(self, here: InEngine | None) -> bool:
        """Check if the engine has the same image."""
        return here is not None and here.digest in (self.digest, self.config)


@dataclass(frozen=True, kw_only=True)
class Known:
    """All facts, by image id. ``engine``: why no engine answered; ``registry``: its name (empty: not asked)."""

    engine: str = ""
    registry: str = ""
    present: Mapping[str, InEngine] = field(default_factory=dict)
    released: Mapping[str, InRegistry] = field(default_factory=dict)
    locks: Mapping[str, Lock] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
