"""The waste of an image: each wasted byte once, by kind, layer and file. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchbake.contents.cache_paths import PathRule
from torchbake.contents.doubles import copies, cuda_copies
from torchbake.contents.gpu_code import order_of
from torchbake.contents.gpus import Capability, needless
from torchbake.contents.model import Inventory
from torchbake.contents.stored_files import StoredFile, stored_files
from torchbake.contents.waste_kinds import KINDS, WasteKind
from torchbake.contents.waste_paths import (
    bytecode_rule,
    compiler_rule,
    is_of_nvidia,
    is_test,
    optimisation,
    path_rule,
)
from torchbake.contents.waste_report import WastedFile, WasteFinding, WasteReport


@dataclass(frozen=True, kw_only=True)
class WasteMatch:
    """A stored file with the kind and the number of its wasted bytes. The other fields are as in `WastedFile`."""

    file: StoredFile
    kind: str
    size: int
    copy_of: str = ""
    hidden_by: int | None = None


def find_waste(inventory: Inventory, *, gpus: Sequence[Capability] = (), ignore: Collection[str] = ()) -> WasteReport:
    """Find what an image holds for nothing. ``ignore`` are names of kinds that are not reported."""
    stored = stored_files(inventory.files)
    groups: defaultdict[tuple[str, int, int | None], list[WastedFile]] = defaultdict(list)
    for match in _matches(inventory, stored, gpus):
        layer = match.file.file.layer
        wasted = WastedFile(
            path=match.file.path, layer=layer, size=match.size, copy_of=match.copy_of, hidden_by=match.hidden_by
        )
        groups[match.kind, layer, match.hidden_by].append(wasted)
    findings = [_finding(inventory, KINDS[kind], files) for (kind, *_), files in groups.items() if kind not in ignore]
    sizes = [layer.compressed for layer in inventory.layers]
    return WasteReport(
        name=inventory.name,
        digest=inventory.digest,
        platform=inventory.platform,
        size=inventory.size,
        compressed=sum(size or 0 for size in sizes) if None not in sizes else None,
        findings=tuple(
            sorted(findings, key=lambda each: (-each.size, each.kind.name, each.layer, each.hidden_by or 0))
        ),
        gpu_code=_gpu_code(file for file in stored if file.visible),
        gpus=tuple(gpus),
        ignored=tuple(dict.fromkeys(ignore)),
    )


def _finding(inventory: Inventory, kind: WasteKind, files: Sequence[WastedFile]) -> WasteFinding:
    hidden_by = files[0].hidden_by
    layer, size = inventory.layers[files[0].layer], sum(file.size for file in files)
    compressed = None if layer.compressed is None or not layer.size else round(layer.compressed * size / layer.size)
    return WasteFinding(
        kind=kind,
        layer=files[0].layer,
        step=layer.step,
        size=size,
        compressed=compressed,
        files=tuple(sorted(files, key=lambda file: (-file.size, file.path))),
        hidden_by=hidden_by,
        hiding_step="" if hidden_by is None else inventory.layers[hidden_by].step,
    )


def _gpu_code(files: Iterable[StoredFile]) -> dict[str, int]:
    sizes = Counter[str]()
    for file in files:
        sizes.update(file.file.gpu_code)
    return {name: sizes[name] for name in sorted(sizes, key=order_of)}


class _Sorting:
    """Files that go to the first kind of waste that takes them."""

    def __init__(self, files: Iterable[StoredFile]) -> None:
        self.rest, self.matches = list(files), list[WasteMatch]()

    def take(self, matches: Iterable[WasteMatch]) -> None:
        own = list(matches)
        self.matches += own
        taken_ids = {id(match.file) for match in own}
        self.rest = [file for file in self.rest if id(file) not in taken_ids]

    def take_by(self, rule: PathRule, *, information: bool = False) -> None:
        """Take files all of whose visible names are of the kind that the rule says; ``information`` as in `KINDS`."""
        kinds = ((file, _kind(file, rule)) for file in self.rest)
        self.take(_whole(file, kind) for file, kind in kinds if kind and KINDS[kind].information == information)


def _matches(inventory: Inventory, stored: Sequence[StoredFile], gpus: Sequence[Capability]) -> list[WasteMatch]:
    """Sort hidden files, then visible ones by path, by equal content and by GPU code; information comes last."""
    files = _Sorting(stored)
    contents = {(name.layer, name.path): file for file in stored for name in file.names}
    files.take(_hidden(file, contents) for file in files.rest if not file.visible)
    bytecode = bytecode_rule(inventory.visible, level=optimisation(inventory))
    for rule in (path_rule(inventory), bytecode, compiler_rule(inventory)):
        files.take_by(rule)
    files.take(_whole(file, "cuda-twice", copy_of=other) for file, other in cuda_copies(files.rest))
    doubles = copies(files.rest, inventory.owned, inventory.owned_by("debian"))
    files.take(_whole(file, "double", copy_of=other) for file, other in doubles)
    files.take(_needless(files.rest, gpus))
    files.take_by(bytecode, information=True)
    files.take_by(lambda path: "tests" if is_test(path) else None, information=True)
    return files.matches


def _whole(file: StoredFile, kind: str, **more: Any) -> WasteMatch:
    """Return a match of all bytes of a file."""
    return WasteMatch(file=file, kind=kind, size=file.file.size, **more)


def _kind(file: StoredFile, rule: PathRule) -> str | None:
    """Return the kind of a file all of whose visible names have one; a hard link elsewhere needs the content."""
    if len(file.visible) == 1:
        return rule(file.path)
    kinds = [rule(name.path) for name in file.visible]
    return kinds[0] if all(kinds) else None


def _hidden(file: StoredFile, contents: Mapping[tuple[int, str], StoredFile]) -> WasteMatch:
    """Say why a hidden file is waste: its path is removed, replaced, or has the same content with another owner."""
    entry = max(file.names, key=lambda name: name.hidden_by or 0)
    hiding = entry.hidden_by or 0
    kind = "removed"
    if entry.replaced:
        later = contents.get((hiding, entry.path))
        kind = "ownership" if later and _is_moved(file, later) else "replaced"
    return _whole(file, kind, hidden_by=hiding)


def _is_moved(file: StoredFile, later: StoredFile) -> bool:
    """Return whether two files have the same content, and another owner or mode."""
    one, other = file.file, later.file
    same = (one.size, one.content) == (other.size, other.content)
    return same and (one.uid, one.gid, one.mode) != (other.uid, other.gid, other.mode)


def _needless(files: Iterable[StoredFile], gpus: Sequence[Capability]) -> Iterator[WasteMatch]:
    """Find code for other GPUs than these; none if no GPUs are known."""
    for file in files if gpus else ():
        code = file.file.gpu_code
        if size := sum(code[name] for name in needless(code, gpus)):
            kind = "nvidia-gpu-code" if is_of_nvidia(file.path) else "gpu-code"
            yield WasteMatch(file=file, kind=kind, size=size)
