"""The page of a verdict: as it was reviewed, and whatever somebody writes is text."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checks.test_reports import BAD, GOLDEN, GOOD, LABELS
from tests.unit.checks.test_verdict import FAILED, NOT_RUN, check, verdict
from tests.unit.conftest import check_golden
from torchbake.checks.markdown import markdown


def test_the_page_of_a_verdict() -> None:
    check_golden(GOLDEN / "verdict.md", markdown(BAD, LABELS))


def test_the_page_of_a_partial_verdict_says_so() -> None:
    assert "of a part of the checks" in markdown(GOOD, LABELS, partial=True)
    assert "of a part of the checks" not in markdown(GOOD, LABELS)


@given(st.text(alphabet=st.sampled_from("ab|`<_*\n[\\ ")))
def test_any_text_stays_within_its_row(reason: str) -> None:
    rows = markdown(verdict(check(outcome=NOT_RUN, reason=reason), check()), {}).partition("## Not run\n\n")[2]
    line = rows.partition("\n\n")[0].splitlines()[2]
    bare = line.replace("\\\\", "").replace("\\|", "")
    assert bare.count("|") == 3
    assert len(rows.partition("\n\n")[0].splitlines()) == 3


def test_what_puts_a_failure_right_stands_below_it() -> None:
    text = markdown(verdict(check(outcome=FAILED, reason="it is gone", remedy="Put it there")), {})
    assert "it is gone\nPut it there\n```" in text


def test_colours_are_left_out() -> None:
    colourful = verdict(check(outcome=FAILED, reason="\x1b[31mred\x1b[0m\n\x1b[1mbold"))
    assert "\x1b" not in markdown(colourful, {})
