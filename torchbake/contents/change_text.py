"""Changes in words and as JSON, for all outputs of a comparison. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torchbake.contents.compare import ImageComparison
from torchbake.contents.file_changes import FileChange
from torchbake.contents.folder_groups import FolderChanges
from torchbake.contents.model import ImageLayer, Inventory, LayerFile
from torchbake.contents.package_changes import PackageChange
from torchbake.core.digest import short_digest
from torchbake.core.sizes import human


def signed(size: int) -> str:
    """Format a change in bytes with its sign: ``+1.2 MB``, ``−3 kB``; an empty text for 0."""
    return f"+{human(size)}" if size > 0 else human(size) if size else ""


def growth(changes: Sequence[FileChange]) -> int:
    """Return by how many bytes the second image is larger for these changes."""
    return sum(change.size_after - change.size_before for change in changes)


def tally(changes: Sequence[FileChange]) -> str:
    """Count changes by their state: ``3 added, 1 changed``."""
    counts = Counter(change.state for change in changes)
    return ", ".join(f"{counts[state]} {state}" for state in ("added", "removed", "changed", "moved") if counts[state])


def describe_file(change: FileChange) -> str:
    """Describe one change without its path: ``mode 644 → 755``."""
    details = ", ".join(_aspect(name, change.before, change.after) for name in change.aspects)
    if change.state == "changed":
        return details
    origin = f" from /{change.before.path}" if change.before and change.state == "moved" else ""
    return f"{change.state}{origin}{f', {details}' if details else ''}"


def _aspect(name: str, before: LayerFile | None, after: LayerFile | None) -> str:
    old, new = (_value(name, file) if file else "" for file in (before, after))
    return f"{name} {old} → {new}"


def _value(name: str, file: LayerFile) -> str:
    values = {"kind": file.kind, "mode": f"{file.mode:o}", "owner": f"{file.uid}:{file.gid}", "link": file.content}
    return values.get(name) or short_digest(file.content)


def describe_folder(group: FolderChanges) -> str:
    """Describe the changes below a folder, or the only change."""
    if len(group.changes) == 1:
        return describe_file(group.changes[0])
    return f"{tally(group.changes)}{f' from /{group.origin}' if group.origin else ''}"


def describe_package(change: PackageChange) -> str:
    """Return what a package is now: its version, or that only its files differ."""
    if change.state == "rebuilt":
        return f"{change.after}, rebuilt: {tally(change.files)}"
    return change.after


def as_json(comparison: ImageComparison, *, files: bool) -> dict[str, Any]:
    """Return a comparison as JSON. With ``files`` each package has its files, and each file of bytecode is listed."""
    layers = comparison.layers
    return {
        "equal": not any(comparison.parts.values()),
        "summary": comparison.summary,
        "first": _image(comparison.before, comparison.shown_before),
        "second": _image(comparison.after, comparison.shown_after),
        "pull": layers.pull,
        "layers": {
            "shared": [_layer(layer) for layer in layers.shared],
            "repacked": [_layer(layer) for layer in layers.repacked],
            "added": [_layer(layer) for layer in layers.added],
            "removed": [_layer(layer) for layer in layers.removed],
        },
        "packages": [_package(change, files=files) for change in comparison.packages],
        "files": [_file(change) for change in comparison.files],
        "bytecode": _bytes(comparison.bytecode)
        | ({"list": [_file(change) for change in comparison.bytecode]} if files else {}),
        "config": [{"key": each.key, "first": each.before, "second": each.after} for each in comparison.config],
    }


def equal_as_json(first: str, second: str, digest: str, summary: str) -> dict[str, Any]:
    """Return the comparison of one image with itself, of which no layer was read: unknown values are null."""
    image = {"digest": digest, "platform": None, "bytes": None, "visible_bytes": None}
    return {
        "equal": True,
        "summary": summary,
        "first": {"name": first} | image,
        "second": {"name": second} | image,
        "pull": 0,
        "layers": {"shared": [], "repacked": [], "added": [], "removed": []},
        "packages": [],
        "files": [],
        "bytecode": {"changed_files": 0, "bytes": [0, 0], "list": []},
        "config": [],
    }


def _image(image: Inventory, visible: int) -> dict[str, Any]:
    return {
        "name": image.name, "digest": image.digest, "platform": image.platform, "bytes": image.size,
        "visible_bytes": visible,
    }  # fmt: skip


def _layer(layer: ImageLayer) -> dict[str, Any]:
    return {"digest": layer.digest, "compressed": layer.compressed, "bytes": layer.size, "step": layer.step}


def _package(change: PackageChange, *, files: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": change.kind, "name": change.name, "change": change.state, "first": change.before or None,
        "second": change.after or None, "bytes": [change.size_before, change.size_after],
        "changed_files": len(change.files),
    }  # fmt: skip
    return entry | ({"files": [_file(each) for each in change.files]} if files else {})


def _file(change: FileChange) -> dict[str, Any]:
    """Return a change with both entries; a moved file has two paths."""
    return {
        "path": f"/{change.path}", "change": change.state, "differs": list(change.aspects),
        "bytes": [change.size_before, change.size_after],
        "first": _entry(change.before), "second": _entry(change.after),
    }  # fmt: skip


def _entry(file: LayerFile | None) -> dict[str, Any] | None:
    if file is None:
        return None
    entry = {"path": f"/{file.path}", "kind": file.kind, "mode": f"{file.mode:o}", "owner": f"{file.uid}:{file.gid}"}
    return entry | ({"content": file.content} if file.content else {})


def _bytes(changes: Sequence[FileChange]) -> dict[str, Any]:
    sizes = [sum(change.size_before for change in changes), sum(change.size_after for change in changes)]
    return {"changed_files": len(changes), "bytes": sizes}
