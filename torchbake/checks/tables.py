"""Tables of check results on the terminal."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from torchbake.checks.reports import ImageResult, as_json
from torchbake.checks.verdict import CheckResult, Outcome, causes, tally
from torchbake.core.plain_text import clean
from torchbake.ui import console

_STYLES = {Outcome.PASSED: "green", Outcome.FAILED: "bold red", Outcome.NOT_RUN: "yellow", Outcome.WAIVED: "magenta"}
_ORDER = (Outcome.PASSED, Outcome.NOT_RUN, Outcome.WAIVED, Outcome.FAILED)  # the last rows are seen best
_CELL = 160  # characters of a reason; the report has all
_MOST_CHECKS = 4  # checks that are named with a reason


def show_run(results: Sequence[ImageResult]) -> None:
    """Print a run: a row for each image, then failed and waived checks, and the reasons why checks did not run."""
    columns = ("image", "outcome", "passed", "failed", "not run", "waived", "time", "remark")
    rows: list[tuple[str | Text, ...]] = [
        (Text(each.name, style="bold"), Text(each.outcome, style=_STYLES[each.outcome]), *each.figures, each.remark)
        for each in results
    ]
    console.show_table(columns, rows)
    for outcome in (Outcome.FAILED, Outcome.WAIVED):
        matches = [
            (Text(check.id, style=_STYLES[outcome]), image.name, _cut(check.summary))
            for image in results
            for check in image.checks
            if check.outcome is outcome
        ]
        if matches:
            console.out().print()
            console.show_table((str(outcome), "image", "reason"), matches)
    _show_causes([check for image in results for check in image.checks])


def show_each(results: Sequence[ImageResult], form: str) -> None:
    """Print each result with its checks, or all as JSON."""
    if form == "json":
        console.show_json(as_json(results))
        return
    for each in results:
        result = each.problem.sentence if each.problem else tally(each.checks)
        console.out().print(f"{each.name}: {each.outcome}, {result}", markup=False, style="bold")
        if each.checks:
            show_checks(each.checks)


def show_checks(checks: Sequence[CheckResult]) -> None:
    """Print a row for each check, failed checks last, then the reasons why checks did not run."""
    ordered = sorted(checks, key=lambda check: _ORDER.index(check.outcome))
    rows = [
        (
            Text(check.id, style="bold"),
            Text(check.outcome, style=_STYLES[check.outcome]),
            f"{check.seconds:.1f} s" if check.seconds else "",
            _cut(check.summary) if check.outcome in (Outcome.FAILED, Outcome.WAIVED) else "",
        )
        for check in ordered
    ]
    console.show_table(("check", "outcome", "time", "reason"), rows)
    _show_causes(checks)


def _show_causes(checks: Iterable[CheckResult]) -> None:
    rows = []
    for reason, ids in causes(checks).items():
        names = ", ".join(ids[:_MOST_CHECKS]) + (f" +{len(ids) - _MOST_CHECKS}" if len(ids) > _MOST_CHECKS else "")
        rows.append((Text(names, style=_STYLES[Outcome.NOT_RUN]), _cut(reason)))
    if rows:
        console.out().print()
        console.show_table(("not run", "reason"), rows)


def _cut(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"
