"""Waivers: checks that may fail on an image, each for a reason that somebody gave. What is waived is never passed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.errors import UsageError


def parse_waivers(words: Sequence[str]) -> dict[str, str]:
    """``CHECK=REASON`` each. Raises UsageError for one that has no reason."""
    waivers = {}
    for word in words:
        check, _, reason = (part.strip() for part in word.partition("="))
        if "." not in check or not reason:
            what = "has no reason" if "." in check else "names no check"
            raise UsageError(f"--waive {word!r} {what}.", hint="Write --waive 'process.size=why that is acceptable'")
        waivers[check] = reason
    return waivers


def waive(checks: Iterable[CheckResult], waivers: Mapping[str, str]) -> tuple[CheckResult, ...]:
    """The checks, those that failed and have a waiver as waived: first why, then what they found."""
    return tuple(_waived(check, waivers[check.id]) if _applies(check, waivers) else check for check in checks)


def idle(checks: Iterable[CheckResult], waivers: Mapping[str, str]) -> Iterator[str]:
    """The waivers of checks that passed, or that there are not. One that could not run may yet need its waiver."""
    outcomes = {check.id: check.outcome for check in checks}
    for name in waivers:
        if outcomes.get(name, Outcome.PASSED) is Outcome.PASSED:
            yield f"the waiver of {name} waives nothing: " + (
                "it passed" if name in outcomes else "there is no check of that name"
            )


def _applies(check: CheckResult, waivers: Mapping[str, str]) -> bool:
    return check.outcome is Outcome.FAILED and check.id in waivers


def _waived(check: CheckResult, why: str) -> CheckResult:
    return check.model_copy(update={"outcome": Outcome.WAIVED, "reason": f"{why}\nit says: {check.reason}"})
