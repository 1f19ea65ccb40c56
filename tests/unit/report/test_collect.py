"""The verdict that a report shows of an image that several machines have tested."""

import itertools
from collections.abc import Sequence

from tests.unit.checks.test_verdict import FAILED, NOT_RUN, check, verdict
from torchbake.checks.verdict import Verdict
from torchbake.report.collect import combine

OLD = "sha256:old"
A, B, CONFIG = (f"sha256:{digit * 64}" for digit in "abc")


SUITE = {"files.setuid", "smoke.nccl"}


def missing(one: Verdict) -> Sequence[str]:
    return sorted(SUITE - {each.id for each in one.checks})


def render(*verdicts: Verdict) -> Verdict | None:
    """The verdict that is shown, the same in each order."""
    orders: list[Sequence[Verdict]] = list(itertools.permutations(verdicts))
    actual = [combine(order, lambda one: one.suite != OLD, missing) for order in orders]
    assert all(one == actual[0] for one in actual)
    return actual[0]


def test_verdicts_of_one_image_and_suite_are_merged() -> None:
    without = verdict(check(), check("smoke.nccl", NOT_RUN), digest=A)
    with_gpu = verdict(check("smoke.nccl"), digest=A, how=("only=smoke.*",))
    merged = render(without, with_gpu)
    assert merged
    assert [each.outcome.value for each in merged.checks] == ["passed", "passed"]
    packed_otherwise = verdict(check(outcome=FAILED), digest=B, config=CONFIG)
    merged = render(without.model_copy(update={"config": CONFIG}), packed_otherwise)
    assert merged
    assert merged.outcome is FAILED


def test_other_images_and_suites_are_not_merged() -> None:
    first = verdict(check(outcome=FAILED), digest=A)
    later = verdict(check(), digest=B, started="2026-11-22")
    latest_of_old = verdict(check(outcome=FAILED), digest=B, suite=OLD, started="2026-11-23")
    assert render(first, later, latest_of_old) == later
    assert render(latest_of_old.model_copy(update={"started": "2026-11-20"}), latest_of_old) == latest_of_old


def test_a_part_of_the_checks_alone_is_not_shown() -> None:
    part = verdict(check(), digest=A, how=("only=files.*",))
    assert render(part) is None
    assert render(part, part.model_copy(update={"seconds": 9.0})) is None
    assert render(part, verdict(check("smoke.nccl"), digest=B, how=("skip=files.*",))) is None
    assert render() is None
    assert render(verdict()) == verdict()


def test_parts_that_make_a_whole_suite_are_shown() -> None:
    rest = verdict(check("smoke.nccl"), digest=A, how=("skip=files.*",))
    merged = render(verdict(check(), digest=A, how=("only=files.*",)), rest)
    assert merged
    assert {each.id for each in merged.checks} == SUITE
