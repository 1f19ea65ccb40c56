"""What checks found, as tables on the terminal."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from torchbake.checks.reports import Tested, as_json
from torchbake.checks.verdict import CheckResult, Outcome, causes, tally
from torchbake.core.plain_text import clean
from torchbake.ui import console

_STYLES = {Outcome.PASSED: "green", Outcome.FAILED: "bold red", Outcome.NOT_RUN: "yellow", Outcome.WAIVED: "magenta"}
_ORDER = (Outcome.PASSED, Outcome.NOT_RUN, Outcome.WAIVED, Outcome.FAILED)  # what matters is seen last
_CELL = 160  # characters of a reason in a table; the report has all of it


def show_run(tested: Sequence[Tested]) -> None:
    """A run on stdout: a row an image; at its foot each failed check, and each reason why checks did not run."""
    columns = ("image", "outcome", "passed", "failed", "not run", "waived", "time", "remark")
    console.show_table(columns, [_row(image) for image in tested])
    for outcome in (Outcome.FAILED, Outcome.WAIVED):
        rows = [
            (Text(check.id, style=_STYLES[outcome]), image.name, _cut(check.summary))
            for image in tested
            for check in image.checks
            if check.outcome is outcome
        ]
        if rows:
            console.out().print()
            console.show_table((str(outcome), "image", "reason"), rows)
    _show_causes([check for image in tested for check in image.checks])


def show_each(tested: Sequence[Tested], form: str) -> None:
    """Each with its checks on stdout, or as JSON."""
    if form == "json":
        console.show_json(as_json(tested))
        return
    for each in tested:
        said = each.problem.sentence if each.problem else tally(each.checks)
        console.out().print(f"{each.name}: {each.outcome}, {said}", markup=False, style="bold")
        if each.checks:
            show_checks(each.checks)


def show_checks(checks: Sequence[CheckResult]) -> None:
    """Checks on stdout: a row each, failed ones last where they are seen; at the foot why checks did not run."""
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
    found = causes(checks)
    if found:
        console.out().print()
        rows = [(Text(_some(ids), style=_STYLES[Outcome.NOT_RUN]), _cut(reason)) for reason, ids in found.items()]
        console.show_table(("not run", "reason"), rows)


def _row(image: Tested) -> tuple[Text | str, ...]:
    outcome = Text(image.outcome, style=_STYLES[image.outcome])
    return Text(image.name, style="bold"), outcome, *image.figures, image.remark


def _some(ids: Sequence[str], *, most: int = 4) -> str:
    return ", ".join(ids[:most]) + (f" +{len(ids) - most}" if len(ids) > most else "")


def _cut(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"
