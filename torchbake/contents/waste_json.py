"""The waste of an image as a result for programs. Pure."""

from collections.abc import Sequence
from typing import Any

from torchbake.contents.waste_kinds import WasteKind
from torchbake.contents.waste_report import WastedFile, WasteFinding, WasteReport, by_kind, largest, total_compressed


def waste_json(report: WasteReport) -> dict[str, Any]:
    """Return the result for programs. Layers count from 1, the lowest; unknown values are null."""
    return {
        "image": report.name,
        "digest": report.digest,
        "platform": report.platform,
        "bytes": report.size,
        "compressed": report.compressed,
        "wasted": report.wasted,
        "wasted_compressed": report.wasted_compressed,
        "share": report.share,
        "ignored": list(report.ignored),
        "kinds": [_kind_as_json(kind, group) for kind, group in by_kind(report.findings)],
        "gpus": [f"{major}.{minor}" for major, minor in report.gpus],
        "gpu_code": dict(report.gpu_code),
    }


def _kind_as_json(kind: WasteKind, group: Sequence[WasteFinding]) -> dict[str, Any]:
    return {
        "kind": kind.name,
        "title": kind.title,
        "information": kind.information,
        "bytes": sum(each.size for each in group),
        "compressed": total_compressed(group),
        "why": kind.why,
        "mend": kind.mend,
        "torchbake": kind.torchbake,
        "layers": [_layer_as_json(each) for each in group],
        "files": [_file_as_json(file) for file in largest(group)],
    }


def _layer_as_json(finding: WasteFinding) -> dict[str, Any]:
    return {
        "layer": finding.layer + 1,
        "step": finding.step,
        "bytes": finding.size,
        "compressed": finding.compressed,
        "files": len(finding.files),
        "hidden_by": None if finding.hidden_by is None else finding.hidden_by + 1,
        "hiding_step": finding.hiding_step,
    }


def _file_as_json(file: WastedFile) -> dict[str, Any]:
    return {
        "path": f"/{file.path}",
        "layer": file.layer + 1,
        "bytes": file.size,
        "hidden_by": None if file.hidden_by is None else file.hidden_by + 1,
        "copy_of": f"/{file.copy_of}" if file.copy_of else None,
    }
