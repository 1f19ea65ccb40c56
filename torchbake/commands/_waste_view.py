"""The waste of an image as text on a terminal."""

from collections.abc import Iterable, Sequence

from torchbake.contents.gpus import gpus_of
from torchbake.contents.waste_kinds import WasteKind
from torchbake.contents.waste_limit import headline, percent
from torchbake.contents.waste_report import WastedFile, WasteFinding, WasteReport, by_kind, largest, total_compressed
from torchbake.core.plain_text import shortened
from torchbake.core.sizes import human
from torchbake.ui import console


def show_report(report: WasteReport, paths: int) -> None:
    """Show the result, with the largest ``paths`` of each kind."""
    console.show_lines(f"{report.name} ({report.platform}): {headline(report)}")
    for title, findings in (("", report.waste), ("Of use to some, and not counted:", report.information)):
        if findings:
            console.show_lines("", *filter(None, [title]))
            console.show_table(_COLUMNS, [_row(report, *group) for group in by_kind(findings)])
    for kind, group in (*by_kind(report.waste), *by_kind(report.information)):
        if paths or sum(each.size for each in group) >= _WORTH_A_WORD * report.size:
            console.show_lines("", *_advice(kind, group, paths))
        if paths:
            console.show_table(("path", "size", "layer", "hidden by", "also at"), map(_path_row, largest(group, paths)))
    if report.gpu_code:
        console.show_lines("", "GPU code by architecture, an estimate:")
        console.show_table(("code", "size", "GPUs"), _gpu_rows(report))
        if not report.gpus:
            console.say("With --gpus 8.0,9.0 (or A100,H100), the code for other GPUs counts as waste.")


_WORTH_A_WORD = 0.001  # of the image; smaller kinds are in the table alone, unless paths are shown
_LAYERS = 3  # of a kind that are named
_STEP = 100  # characters of a step
_COLUMNS = ("kind", "size", "of all", "compressed", "files", "layers", "what")


def _row(report: WasteReport, kind: WasteKind, group: Sequence[WasteFinding]) -> tuple[str, ...]:
    size, compressed = sum(each.size for each in group), total_compressed(group)
    return (
        kind.name,
        human(size),
        percent(size / report.size),
        "" if compressed is None else f"≈ {human(compressed)}",
        str(sum(len(each.files) for each in group)),
        ", ".join(str(layer + 1) for layer in sorted({each.layer for each in group})),
        kind.title,
    )


def _advice(kind: WasteKind, group: Sequence[WasteFinding], paths: int) -> Iterable[str]:
    yield f"{kind.name}: {kind.why}"
    yield f"  how to mend it: {kind.mend}"
    if kind.torchbake:
        yield f"  {kind.torchbake}"
    for each in group[: paths or _LAYERS]:
        hiding = "" if each.hidden_by is None else f"; hidden by {_layer(each.hidden_by, each.hiding_step)}"
        yield f"  {human(each.size)} in {_layer(each.layer, each.step)}{hiding}"


def _layer(number: int, step: str) -> str:
    return f"layer {number + 1} ({shortened(step, _STEP)})" if step else f"layer {number + 1}"


def _path_row(file: WastedFile) -> tuple[str, ...]:
    hidden_by = "" if file.hidden_by is None else str(file.hidden_by + 1)
    copy_of = f"/{file.copy_of}" if file.copy_of else ""
    return f"/{file.path}", human(file.size), str(file.layer + 1), hidden_by, copy_of


def _gpu_rows(report: WasteReport) -> list[tuple[str, str, str]]:
    return [(name, human(size), gpus_of(name)) for name, size in report.gpu_code.items()]
