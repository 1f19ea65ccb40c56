"""The JUnit file of a verdict: as it was reviewed, and one that can be read whatever is in it."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checks.test_reports import BAD, GOLDEN, NAME
from tests.unit.checks.test_verdict import FAILED, NOT_RUN, check, verdict
from tests.unit.conftest import check_golden
from torchbake.checks.junit import junit


def cases(text: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text.encode()).iter("testcase"))


def test_the_junit_file_of_a_verdict() -> None:
    check_golden(GOLDEN / "verdict.xml", junit(NAME, BAD))


@given(st.text(), st.text())
def test_any_text_makes_a_junit_file_that_can_be_read(name: str, reason: str) -> None:
    checks = (check(name, FAILED, reason, figures={"said": reason}), check(name, NOT_RUN, reason), check(name))
    failed, not_run, passed = cases(junit(name, verdict(*checks, id=name)))
    assert [element.tag for element in failed] == ["failure", "system-out"]
    assert [element.tag for element in not_run] == ["skipped"]
    assert not list(passed)


def test_what_puts_a_failure_right_stands_below_it() -> None:
    text = junit("x", verdict(check(outcome=FAILED, reason="it is gone", remedy="Put it there")))
    assert ">it is gone\nPut it there<" in text


def test_colours_are_left_out() -> None:
    colourful = verdict(check(outcome=FAILED, reason="\x1b[31mred\x1b[0m\n\x1b[1mbold"))
    assert cases(junit(NAME, colourful))[0][0].text == "red\nbold"
