"""Verdicts: what checks add up to, and when an old verdict may answer for a new run."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchbake.checks.verdict import (
    CheckResult,
    Outcome,
    Verdict,
    causes,
    counts,
    dump_results,
    merge,
    outcome_of,
    read_results,
    remedies,
    tally,
)
from torchbake.core.problem import Problem

PASSED, FAILED, NOT_RUN = Outcome.PASSED, Outcome.FAILED, Outcome.NOT_RUN
SAME = {"image": "acme/pytorch:cpu", "digest": "sha256:aa", "suite": "sha256:bb", "gpu": "auto"}
outcomes = st.lists(st.sampled_from(list(Outcome)))


def check(name: str = "files.setuid", outcome: Outcome = PASSED, reason: str = "", **more: Any) -> CheckResult:
    return CheckResult(id=name, outcome=outcome, reason=reason, **more)


def verdict(*checks: CheckResult, **changes: Any) -> Verdict:
    values: dict[str, Any] = {
        **SAME,
        "id": "2.13.0-cpu-runtime-debian12",
        "started": "2026-11-21T07:48:10+00:00",
        "seconds": 4.5,
        "checks": checks or (check(),),
    }
    return Verdict(**values | changes)


def test_a_check_is_what_was_found() -> None:
    wrong = Problem(reason="it is root's", remedy="chown it")
    unread = replace(wrong, unknown=True)
    of = {problem: CheckResult.of("files.owner", problem) for problem in (None, wrong, unread)}
    assert [one.outcome for one in of.values()] == [PASSED, FAILED, NOT_RUN]
    assert of[None].text == ""
    assert of[wrong].text == of[unread].text == "it is root's\nchown it"
    for problem in of:
        assert CheckResult.of("files.owner", problem, seconds=1.5).seconds == 1.5
    assert {one.id for one in of.values()} == {"files.owner"}


def test_the_summary_is_the_first_line_of_the_reason() -> None:
    for outcome, reason, summary in (
        (PASSED, "", ""),
        (FAILED, "", "no reason given"),
        (NOT_RUN, " \n ", "no reason given"),
        (PASSED, "\n slow \nbut good\n", "slow"),
        (FAILED, "a\nb", "a"),
    ):
        assert check(outcome=outcome, reason=reason).summary == summary
    assert check(outcome=FAILED, reason=" a\nb\n", remedy="c").text == "a\nb\nc"


def test_remedies_are_listed_once_and_only_of_failed_checks() -> None:
    checks = [
        check(outcome=outcome, reason="r", remedy=word)
        for outcome, word in ((FAILED, "a"), (NOT_RUN, "c"), (FAILED, ""), (FAILED, "a"), (FAILED, "b"))
    ]
    assert remedies(checks) == ("a", "b")
    assert verdict(*checks).of(NOT_RUN) == (checks[1],)


def test_what_checks_add_up_to() -> None:
    for ends, expected in (
        ((), NOT_RUN),
        ((PASSED,), PASSED),
        ((NOT_RUN,), NOT_RUN),
        ((NOT_RUN, NOT_RUN), NOT_RUN),
        ((PASSED, NOT_RUN), PASSED),
        ((PASSED, FAILED), FAILED),
        ((NOT_RUN, FAILED), FAILED),
        ((FAILED,), FAILED),
    ):
        for order in itertools.permutations(ends):
            assert outcome_of(check(outcome=outcome) for outcome in order) is expected, (ends, expected)
            assert (
                verdict().model_copy(update={"checks": tuple(check(outcome=one) for one in order)}).outcome is expected
            ), (ends, expected)


@given(outcomes)
def test_a_failed_check_is_never_outvoted(ends: list[Outcome]) -> None:
    assert outcome_of(check(outcome=outcome) for outcome in [*ends, FAILED]) is FAILED


@given(outcomes)
def test_every_check_is_counted_once_and_under_its_own_outcome(ends: list[Outcome]) -> None:
    counted = counts(check(outcome=outcome) for outcome in ends)
    assert list(counted) == list(Outcome)
    assert counted == {outcome: ends.count(outcome) for outcome in Outcome}


def test_the_tally_leaves_out_what_did_not_happen() -> None:
    assert tally([check(), check(), check(outcome=NOT_RUN)]) == "2 passed, 1 not run"
    assert tally([check(outcome=FAILED)]) == "1 failed"
    assert tally([]) == "no checks"


def test_each_reason_is_listed_once_with_its_unrun_checks() -> None:
    checks = [
        check("smoke.nccl", NOT_RUN, "no GPU"),
        check("files.setuid", FAILED, "no GPU"),
        check("smoke.compile", NOT_RUN, "no compiler\nin any folder"),
        check("smoke.cuda", NOT_RUN, "no GPU"),
        check("smoke.nccl", NOT_RUN, "no GPU"),
        check("smoke.mute", NOT_RUN),
    ]
    assert causes(checks) == {
        "no GPU": ["smoke.nccl", "smoke.cuda"],
        "no compiler": ["smoke.compile"],
        "no reason given": ["smoke.mute"],
    }


def test_a_passed_verdict_answers_for_the_same_image_and_suite() -> None:
    assert verdict(check(), check(outcome=NOT_RUN, reason="no compiler")).answers(**SAME)


@pytest.mark.parametrize("key", SAME)
def test_it_does_not_once_anything_differs(key: str) -> None:
    assert not verdict().answers(**SAME | {key: "another"})


def test_what_auto_left_out_is_no_pass_for_require() -> None:
    without_gpu = verdict(check(), check("smoke.nccl", NOT_RUN, "no GPU"), gpu="auto")
    assert not without_gpu.answers(**SAME | {"gpu": "require"})


@pytest.mark.parametrize("outcome", [FAILED, NOT_RUN])
def test_only_a_pass_is_taken_on_trust(outcome: Outcome) -> None:
    assert not verdict(check(outcome=outcome)).answers(**SAME)


def test_a_verdict_reads_back_as_it_was_written() -> None:
    original = verdict(
        check(figures={"MB": 12.5, "layers": [1, 2]}), check(outcome=FAILED, reason="a\nb"), seconds=1.25
    )
    assert Verdict.model_validate_json(original.model_dump_json()) == original
    assert '"outcome":"failed"' in original.model_dump_json()


def test_results_read_back_as_they_were_written() -> None:
    results = (check(), check("ddp.sum", NOT_RUN, "one node", seconds=0.5, figures={"n": 1}))
    assert read_results(dump_results(results)) == results


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[",
        '[{"id": "a"}]',
        '[{"id": "a", "outcome": "skipped"}]',
        '[{"id": "a", "outcome": "passed", "verdict": "passed"}]',
    ],
)
def test_results_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        read_results(text)


def test_the_minute_and_the_figures_of_a_verdict_are_text() -> None:
    assert verdict().minute == "2026-11-21 07:48 UTC"
    assert check(figures={"b": "ü", "a": 1}).measured == '{"a": 1, "b": "ü"}'
    assert check(figures={"a": Path("/x")}).measured == '{"a": "/x"}'


def test_merging_keeps_the_worst_outcome_and_not_run_gives_way() -> None:
    waived = Outcome.WAIVED
    rank = [NOT_RUN, PASSED, waived, FAILED]
    for length in (1, 2, 3):
        for ends in itertools.product(Outcome, repeat=length):
            merged = merge(verdict(check(outcome=outcome), started=f"2026-11-2{n}") for n, outcome in enumerate(ends))
            assert merged.checks[0].outcome is max(ends, key=rank.index), ends


def test_merging_ignores_the_order_and_keeps_every_check() -> None:
    gpu = check("smoke.nccl", figures={"gpu": "H100"})
    on_cpu = verdict(check(), check("smoke.nccl", NOT_RUN, "no GPU"), check("users.root"), how=("gpu=none",))
    on_gpu = verdict(check(outcome=FAILED, reason="setuid"), gpu, how=("gpu=cdi", "only=smoke.*"), seconds=1.25)
    later = verdict(check("smoke.more"), started="2026-11-22T00:00:00+00:00")
    merged = {merge(order).model_dump_json() for order in itertools.permutations([on_cpu, on_gpu, later])}
    assert len(merged) == 1
    one = merge([on_gpu, later, on_cpu])
    matches = {each.id: each.outcome for each in one.checks}
    assert matches == {"files.setuid": FAILED, "smoke.nccl": PASSED, "users.root": PASSED, "smoke.more": PASSED}
    assert one.outcome is FAILED
    assert (one.devices, one.how, one.seconds, one.partial) == (("H100",), ("gpu=none",), 10.25, False)


def test_merged_seconds_add_up_to_hundredths() -> None:
    assert merge([verdict(seconds=0.1), verdict(seconds=0.223)]).seconds == 0.32


def test_of_equally_many_checks_the_latest_verdict_counts() -> None:
    days = [verdict(started=f"2026-11-{day}T07:48:10+00:00", how=(day,)) for day in ("21", "23", "22")]
    for order in itertools.permutations(days):
        assert (merge(order).started, merge(order).how) == (days[1].started, ("23",))


def test_no_verdict_is_the_merge_of_none() -> None:
    with pytest.raises(ValueError, match="no verdicts"):
        merge([])


def test_a_verdict_says_what_it_is_of_and_what_computed() -> None:
    assert verdict().devices == ("cpu",)
    gpus = [check(f"smoke.{name}", figures={"gpu": name}) for name in ("b", "a", "b")]
    assert verdict(check(figures={"MB": 1}), *gpus).devices == ("a", "b")
    assert [verdict(how=(word,)).partial for word in ("only=a.*", "skip=a.*", "gpu=cdi")] == [True, True, False]
    assert [verdict(how=(word,)).derived for word in ("derived", "nodes=2")] == [True, False]
