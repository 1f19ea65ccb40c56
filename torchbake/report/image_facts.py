"""What is known of images before it is put together: facts of the engine, a registry, the locks and the verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchbake.checks.verdict import Verdict
from torchbake.lock.lockfile import Lock
from torchbake.release.record import Record
from torchbake.report.layer_sharing import Layer


@dataclass(frozen=True, kw_only=True)
class InEngine:
    """An image that the engine has. ``stale``: why it would be built again; None: that cannot be told."""

    digest: str
    labels: Mapping[str, str]
    uncompressed: int
    compressed: int | None
    layers: tuple[Layer, ...]
    stale: str | None


@dataclass(frozen=True, kw_only=True)
class InRegistry:
    """An image's newest release, and the record of the one before it.

    ``config`` is the digest of its config, by which a classic store knows it.

    ``packages`` is how many its SBOM lists; None: it has none that can be read. ``current``: the image's own tag is at
    it.
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
        """Return whether the engine has this very image."""
        return here is not None and here.digest in (self.digest, self.config)


@dataclass(frozen=True, kw_only=True)
class Known:
    """All that was read, by image id. ``engine``: why there is none; ``registry``: its name, empty if not asked."""

    engine: str = ""
    registry: str = ""
    present: Mapping[str, InEngine] = field(default_factory=dict)
    released: Mapping[str, InRegistry] = field(default_factory=dict)
    locks: Mapping[str, Lock] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
