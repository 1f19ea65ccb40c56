"""What puts a failed check right: words that its reason's later lines begin with, collected from many checks. Pure."""

from collections.abc import Iterable

from torchbake.checks.verdict import CheckResult, Outcome

RELEASE, MOVE, REMOVE, SIGN = "Release it", "Put it there", "Remove it in the registry", "Sign it if it is right"
TRUST = "Trust the image"


class Unknown(str):
    """Why a check could not run; any other text that is not empty says what is wrong."""

    __slots__ = ()


def next_steps(checks: Iterable[CheckResult]) -> tuple[str, ...]:
    """What puts failed checks right, each command once."""
    failed = (check for check in checks if check.outcome is Outcome.FAILED)
    lines = (line for check in failed for line in check.reason.splitlines()[1:])
    return tuple(dict.fromkeys(line for line in lines if line.startswith((RELEASE, MOVE, REMOVE, SIGN, TRUST))))
