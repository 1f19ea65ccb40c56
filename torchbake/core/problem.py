"""What is wrong, or why nobody can tell: one result for everything that is judged; where all is good it is None."""

from dataclasses import dataclass

from torchbake.errors import TorchbakeError


@dataclass(frozen=True, kw_only=True)
class Problem:
    """``reason`` says what is wrong, ``remedy`` what puts it right (empty: nothing that is known).

    ``unknown``: nothing is proved to be wrong, as ``reason`` kept it from being looked at.
    """

    reason: str
    remedy: str = ""
    unknown: bool = False

    @property
    def sentence(self) -> str:
        """Both, one after the other."""
        return f"{self.reason.removesuffix('.')}. {self.remedy}" if self.remedy else self.reason


def problem_of(error: TorchbakeError) -> Problem:
    return Problem(reason=error.message, remedy=error.hint or "")


def unknown(reason: str) -> Problem:
    return Problem(reason=reason, unknown=True)
