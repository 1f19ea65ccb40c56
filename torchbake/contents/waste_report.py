"""The waste of an image as data: findings by kind and layer, with their files. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torchbake.contents.gpus import Capability
from torchbake.contents.waste_kinds import KINDS, WasteKind


@dataclass(frozen=True, kw_only=True)
class WastedFile:
    """The wasted bytes of a file. ``copy_of`` is the path that also has it, and ``hidden_by`` the later layer."""

    path: str
    layer: int
    size: int
    copy_of: str = ""
    hidden_by: int | None = None


@dataclass(frozen=True, kw_only=True)
class WasteFinding:
    """The waste of one kind in one layer, the largest files first. ``compressed`` is the layer's share, an estimate.

    If a later layer hides the files, that is ``hidden_by``, with its ``hiding_step``.
    """

    kind: WasteKind
    layer: int
    step: str
    size: int
    compressed: int | None
    files: tuple[WastedFile, ...]
    hidden_by: int | None = None
    hiding_step: str = ""


@dataclass(frozen=True, kw_only=True)
class WasteReport:
    """The findings of an image, from large to small. ``size`` and ``compressed`` are those of all layers.

    ``gpu_code`` are the bytes of visible files by architecture, and ``gpus`` the GPUs that the image is for.
    ``ignored`` are kinds that were not looked for.
    """

    name: str
    digest: str
    platform: str
    size: int
    compressed: int | None
    findings: tuple[WasteFinding, ...]
    gpu_code: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[Capability, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def waste(self) -> tuple[WasteFinding, ...]:
        """The findings that count as waste."""
        return tuple(each for each in self.findings if not each.kind.information)

    @property
    def information(self) -> tuple[WasteFinding, ...]:
        return tuple(each for each in self.findings if each.kind.information)

    @property
    def wasted(self) -> int:
        return sum(each.size for each in self.waste)

    @property
    def wasted_compressed(self) -> int | None:
        """An estimate; None if the compressed sizes of the layers are not known."""
        return total_compressed(self.waste)

    @property
    def share(self) -> float:
        """The wasted part of all bytes: 0.1 is 10 %."""
        return self.wasted / self.size if self.size else 0.0


def total_compressed(findings: Iterable[WasteFinding]) -> int | None:
    sizes = [each.compressed for each in findings]
    known_sizes = [size for size in sizes if size is not None]
    return sum(known_sizes) if len(known_sizes) == len(sizes) else None


def by_kind(findings: Iterable[WasteFinding]) -> list[tuple[WasteKind, list[WasteFinding]]]:
    """Group findings by kind, the kind with the most bytes first."""
    groups: defaultdict[str, list[WasteFinding]] = defaultdict(list)
    for each in findings:
        groups[each.kind.name].append(each)
    ordered = sorted(groups, key=lambda name: (-sum(each.size for each in groups[name]), name))
    return [(KINDS[name], groups[name]) for name in ordered]


def largest(findings: Iterable[WasteFinding], count: int | None = None) -> list[WastedFile]:
    """Return the files of findings, the largest first; all if there is no ``count``."""
    files = [file for each in findings for file in each.files]
    return sorted(files, key=lambda file: (-file.size, file.path, file.layer))[:count]
