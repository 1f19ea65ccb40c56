"""The result of a check that did not pass."""

from dataclasses import dataclass

from torchbake.errors import TorchbakeError


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A reason and its remedy, which is empty if none is known.

    With ``unknown`` the check was not possible for this reason, so nothing is proved to be wrong.
    """

    reason: str
    remedy: str = ""
    unknown: bool = False

    @property
    def sentence(self) -> str:
        """The reason with the remedy."""
        return f"{self.reason.removesuffix('.')}. {self.remedy}" if self.remedy else self.reason


def problem_of(error: TorchbakeError) -> Problem:
    return Problem(reason=error.message, remedy=error.hint or "")


def unknown(reason: str) -> Problem:
    return Problem(reason=reason, unknown=True)
