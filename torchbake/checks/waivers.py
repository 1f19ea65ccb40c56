"""Waivers: checks that may fail on an image, each with a reason. A waived check never counts as passed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.errors import UsageError


def parse_waivers(words: Sequence[str]) -> dict[str, str]:
    """Parse words of the form ``CHECK=REASON``. Raise UsageError for a word without a check or a reason."""
    waivers = {}
    for word in words:
        check, _, reason = (part.strip() for part in word.partition("="))
        if "." not in check or not reason:
            what = "has no reason" if "." in check else "names no check"
            raise UsageError(f"--waive {word!r} {what}.", hint="Write --waive 'process.size=why that is acceptable'")
        waivers[check] = reason
    return waivers


def waive(checks: Iterable[CheckResult], waivers: Mapping[str, str]) -> tuple[CheckResult, ...]:
    """Apply waivers to failed checks. The reason is then that of the waiver, followed by the check's own."""

    def apply(check: CheckResult) -> CheckResult:
        if check.outcome is not Outcome.FAILED or check.id not in waivers:
            return check
        reason = f"{waivers[check.id]}\nit says: {check.reason}"
        return check.model_copy(update={"outcome": Outcome.WAIVED, "reason": reason})

    return tuple(map(apply, checks))


def idle(checks: Iterable[CheckResult], waivers: Mapping[str, str]) -> Iterator[str]:
    """Return a warning for each waiver of a check that passed or does not exist, not for one that could not run."""
    outcomes = {check.id: check.outcome for check in checks}
    for name in waivers:
        if outcomes.get(name, Outcome.PASSED) is Outcome.PASSED:
            reason = "it passed" if name in outcomes else "there is no check of that name"
            yield f"the waiver of {name} waives nothing: {reason}"
