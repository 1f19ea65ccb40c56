"""HTML page about the waste of an image, self-contained with styles and charts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from torchbake.contents.gpus import gpus_of, needless
from torchbake.contents.waste_kinds import WasteKind
from torchbake.contents.waste_limit import headline, percent
from torchbake.contents.waste_report import WastedFile, WasteFinding, WasteReport, by_kind, largest, total_compressed
from torchbake.core.sizes import human
from torchbake.report.html import own_file, render_template
from torchbake.report.svg import Part, bar

_PATHS = 30  # of each kind


@dataclass(frozen=True, kw_only=True)
class KindSummary:
    """The findings of one kind; its bar is relative to the kind with the most bytes of its part of the page."""

    kind: WasteKind
    findings: tuple[WasteFinding, ...]
    files: tuple[WastedFile, ...]
    size: int
    share: float
    compressed: int | None
    bar: Markup


@dataclass(frozen=True, kw_only=True)
class CodeRow:
    """The GPU code of one architecture."""

    name: str
    size: int
    gpus: str
    bar: Markup


def render_waste_page(report: WasteReport) -> str:
    """Return the page. Raise RenderError for a template that is broken."""
    parts = [("Waste", f"{headline(report)}. Each byte is counted once.", _summaries(report, report.waste))]
    if report.information:
        note = "Files that somebody may need. They are not counted as waste."
        parts.append(("Of use to some", note, _summaries(report, report.information)))
    values = {
        "report": report, "parts": parts, "whole": _whole(report), "codes": _codes(report), "percent": percent,
        "gpus": [f"{major}.{minor}" for major, minor in report.gpus],
    }  # fmt: skip
    return render_template("waste", values, style=own_file("report.css") + own_file("waste.css"))


def _summaries(report: WasteReport, findings: Sequence[WasteFinding]) -> list[KindSummary]:
    groups = [(kind, group, sum(each.size for each in group)) for kind, group in by_kind(findings)]
    most = max((size for _, _, size in groups), default=0)
    return [
        KindSummary(
            kind=kind,
            findings=tuple(group),
            files=tuple(largest(group, _PATHS)),
            size=size,
            share=size / report.size,
            compressed=total_compressed(group),
            bar=_bar(size, most, "useful" if kind.information else "waste"),
        )
        for kind, group, size in groups
    ]


def _whole(report: WasteReport) -> Markup:
    """Draw the image as a bar: the waste by kind, then files of use to some, then the rest."""
    pieces = [(kind, sum(each.size for each in group)) for kind, group in by_kind(report.waste)]
    parts = [Part(size=size, kind="waste", label=f"{kind.title}: {human(size)}") for kind, size in pieces]
    useful = sum(each.size for each in report.information)
    parts += [
        Part(size=useful, kind="useful", label=f"of use to some: {human(useful)}"),
        Part(size=report.size - report.wasted - useful, kind="rest"),
    ]
    return bar(parts, whole=report.size, title=headline(report), height=22)


def _codes(report: WasteReport) -> list[CodeRow]:
    """Return a row for each architecture; with GPUs, the code that none of them runs has the colour of waste."""
    most = max(report.gpu_code.values(), default=0)
    surplus = needless(report.gpu_code, report.gpus) if report.gpus else []
    return [
        CodeRow(name=name, size=size, gpus=gpus_of(name), bar=_bar(size, most, "waste" if name in surplus else "own"))
        for name, size in report.gpu_code.items()
    ]


def _bar(size: int, whole: int, kind: str) -> Markup:
    return bar((Part(size=size, kind=kind),), whole=whole, title=human(size), height=10)
