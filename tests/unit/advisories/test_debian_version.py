"""The order of Debian versions, as `dpkg --compare-versions` has it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchbake.advisories.debian_version import debian_key

ASCENDING = (
    "0~~", "0~", "0", "1.0~beta1~svn1245", "1.0~beta1", "1.0", "1.0-1~deb12u1", "1.0-1", "1.0-1+b1", "1.0-1.1", "1.0-2",
    "1.0a", "1.0+dfsg-1", "1.0-2-1", "1.0.1", "1.9", "1.10", "2.36-9+deb12u9", "2.36-9+deb12u10", "10", "1:0.5", "2:0",
    "2:0:1",
)  # fmt: skip
VERSIONS = st.from_regex(r"([0-9]:)?[0-9][A-Za-z0-9.+~]{0,5}(-[A-Za-z0-9.+~]{1,3})?", fullmatch=True)


def test_versions_are_in_dpkgs_order() -> None:
    keys = [debian_key(version) for version in ASCENDING]
    assert all(one < other for one, other in pairwise(keys))


@pytest.mark.parametrize(("one", "other"), [("1.0", "0:1.0"), ("1.0", "1.0-0"), ("1.00", "1.0"), ("1.", "1.0")])
def test_equal_versions_have_several_forms(one: str, other: str) -> None:
    assert debian_key(one) == debian_key(other)


@pytest.mark.parametrize("text", ["", "1.0 ", "1:", "x:1", "1_0", "ä"])
def test_text_that_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no version"):
        debian_key(text)


@given(VERSIONS)
def test_a_tilde_sorts_below_and_a_suffix_above(version: str) -> None:
    assert debian_key(f"{version}~") < debian_key(version) < debian_key(f"{version}+b1")
