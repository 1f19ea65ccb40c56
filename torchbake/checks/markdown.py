"""Markdown page of a verdict, and the parts of such pages."""

import re
from collections.abc import Iterable, Mapping, Sequence

from torchbake.checks.verdict import CheckResult, Outcome, Verdict, causes, tally
from torchbake.core.plain_text import clean
from torchbake.oci.labels import LABEL

_SLOWEST = 5
_MARKS = re.compile(r"[\\`*<\[|]|(?<![^\W_])_|_(?![^\W_])")


def markdown(verdict: Verdict, labels: Mapping[str, str], *, partial: bool = False) -> str:
    """Return the page of a verdict: first failed and waived checks, then checks that did not run, then the rest."""
    versions = [
        f"{name} {value}"
        for key, value in sorted(labels.items())
        if (name := key.removeprefix(f"{LABEL}.")) not in (key, "id", "inputs", "flavor")
    ]
    facts = {
        "outcome": f"**{verdict.outcome}**: {tally(verdict.checks)}" + (", of a part of the checks" if partial else ""),
        "image": _code(verdict.image),
        "digest": _code(verdict.digest),
        "versions": plain(", ".join(versions)) or "its labels name none",
        "GPU checks": verdict.gpu,
        "tested": f"{verdict.minute}, in {verdict.seconds:.1f} s",
    }
    sections = [f"# {verdict.id or verdict.image}: {verdict.outcome}", table(("what", "value"), facts.items())]
    sections += _reasons("Failed", verdict.of(Outcome.FAILED))
    sections += _reasons("Waived", verdict.of(Outcome.WAIVED))
    sections += not_run(verdict.checks)
    slowest = sorted(verdict.checks, key=lambda check: -check.seconds)[:_SLOWEST]
    times = [(plain(check.id), f"{check.seconds:.2f} s") for check in slowest if check.seconds >= 0.01]
    if times:
        sections += ["## Slowest", table(("check", "time"), times)]
    measured = [(plain(check.id), _code(check.measured)) for check in verdict.checks if check.figures]
    if measured:
        sections += ["## Figures", table(("check", "figures"), measured)]
    if verdict.of(Outcome.PASSED):
        sections += ["## Passed", plain(", ".join(check.id for check in verdict.of(Outcome.PASSED)))]
    return "\n\n".join(sections) + "\n"


def not_run(checks: Iterable[CheckResult]) -> list[str]:
    """Return a heading and a table of the reasons why checks did not run, or nothing if all ran."""
    rows = [(plain(reason), plain(", ".join(ids))) for reason, ids in causes(checks).items()]
    return ["## Not run", table(("reason", "checks"), rows)] if rows else []


def table(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Escape a text for Markdown, on one line: `torch.__version__` is not bold."""
    return _MARKS.sub(r"\\\g<0>", " ".join(clean(text).split()))


def _reasons(heading: str, checks: Sequence[CheckResult]) -> list[str]:
    """Return a heading and, for each check, its reason and remedy. Texts of several lines are in a code block."""
    sections = [f"## {heading}"] if checks else []
    for check in checks:
        sections.append(f"**{plain(check.id)}**: {plain(check.summary)}")
        if "\n" in check.text:
            # A fence longer than any in the text, so that the text cannot end it.
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", check.text)), default=0))
            sections.append(f"{fence}\n{clean(check.text)}\n{fence}")
    return sections


def _code(text: str) -> str:
    return "`" + clean(text).replace("`", "'").replace("|", "\\|") + "`"
