"""`reproduce`: the reason of a failure is in the error, whatever the form of the result."""

import pytest

from torchbake.build.reproduce import ReproductionResult
from torchbake.commands.reproduce import _reason
from torchbake.store.diff import Difference, ImageDiff

DIGESTS = ("sha256:a", "sha256:b")


@pytest.mark.parametrize(
    ("differences", "problem", "reason"),
    [
        ((), "no wheel fits", "no wheel fits"),
        ((Difference(where="layer 2", what="made/noise: content"),), "", "layer 2: made/noise: content"),
    ],
)
def test_the_reason_is_the_problem_or_the_first_difference(
    differences: tuple[Difference, ...], problem: str, reason: str
) -> None:
    comparison = None if problem else ImageDiff(digests=DIGESTS, layers=2, equal=1, differences=differences)
    assert _reason(ReproductionResult(id="cpu", comparison=comparison, problem=problem)) == reason
