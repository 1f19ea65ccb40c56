"""The known vulnerabilities of images as text on a terminal."""

from collections.abc import Sequence

from torchbake.advisories.episodes import ServiceLevel
from torchbake.advisories.finding import Severity
from torchbake.core.plain_text import shortened
from torchbake.report.advisory_page import AdvisoryReport, OpenRow
from torchbake.ui import console

_NAMES, _NOTE = 3, 60  # names in a cell, and characters of a remark; JSON has all


def show_report(report: AdvisoryReport) -> None:
    """Show what is open, and the service level if there is a history."""
    columns = ("vulnerability", "severity", "packages", "fixed in", "published", "images", "remark")
    console.show_table(columns, map(_open_row, report.open))
    if report.histories:
        console.show_lines("", "Releases, in days from the publication of a fix to the release with it:")
        titles = ("severity", "fixed", "median", "most", "waiting", "longest", "without a fix")
        console.show_table(titles, map(_level_row, report.levels))
    for image in report.images:
        if image.problem:
            console.say(f"{image.id}: {image.problem}", style="bold red")
        for kind, distribution in image.uncovered.items():
            console.say(f"{image.id}: no advisory file covers its {kind} packages ({distribution})", style="yellow")
    for history in report.histories:
        for tag, problem in history.problems.items():
            console.say(f"{history.id}: {tag} is left out: {problem}", style="yellow")
    console.say(tally(report))


def tally(report: AdvisoryReport) -> str:
    """Return the number of open vulnerabilities by severity."""
    read = sum(not image.problem for image in report.images)
    by_severity = {severity: sum(row.severity == severity for row in report.open) for severity in reversed(Severity)}
    words = [f"{count} {severity.word}" for severity, count in by_severity.items() if count]
    fixable = sum(bool(row.fixed) for row in report.open)
    details = f" ({', '.join(words)}), {fixable} with a fix" if words else ""
    return f"{len(report.open)} known vulnerabilities{details}, in {read} images"


def _open_row(row: OpenRow) -> tuple[str, ...]:
    return (
        row.id,
        row.severity.word,
        _some(row.packages),
        _some(row.fixed),
        row.published.isoformat() if row.published else "",
        _some(row.images),
        shortened(row.note, _NOTE),
    )


def _level_row(level: ServiceLevel) -> tuple[str, ...]:
    figures = (level.closures, level.median, level.most, level.waiting, level.longest, level.unfixed)
    return level.severity.word, *map(_figure, figures)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES]) + (f" +{len(names) - _NAMES}" if len(names) > _NAMES else "")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
