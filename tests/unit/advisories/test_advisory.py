"""Versions that an advisory affects."""

from typing import Any

import pytest

from torchbake.advisories.advisory import PYPI, Advisory, AffectedRange

RANGES = (AffectedRange(fixed="1.4.2"), AffectedRange(introduced="2.0a1", fixed="2.0.1"), AffectedRange(last="0.9"))


def pypi(*ranges: AffectedRange, versions: tuple[str, ...] = ()) -> Advisory:
    return Advisory(distribution=PYPI, package="a", id="CVE-2026-1", ranges=ranges, versions=versions)


@pytest.mark.parametrize(
    ("version", "affected", "fixed"),
    [
        ("1.4.1", True, "1.4.2"),
        ("1.4.2", False, "2.0.1"),
        ("1.4.2.dev1", True, "1.4.2"),
        ("2.0a1", True, "2.0.1"),
        ("2.0.0+cu128", True, "2.0.1"),
        ("2.0.1+cu128", False, ""),
        ("3", False, ""),
    ],
)
def test_a_range_ends_before_its_fix(version: str, affected: bool, fixed: str) -> None:
    advisory = pypi(*RANGES)
    assert (advisory.affects(version), advisory.fixed_after(version)) == (affected, fixed)


def test_the_last_affected_version_is_affected_in_any_build() -> None:
    advisory = pypi(AffectedRange(last="2.5.0"))
    assert [advisory.affects(version) for version in ("2.5.0", "2.5.0+cpu", "2.5.1")] == [True, True, False]
    assert advisory.fixed_after("2.5.0") == ""


def test_a_listed_version_is_affected_outside_of_ranges() -> None:
    advisory = pypi(AffectedRange(fixed="1.0"), versions=("1.5.0",))
    assert [advisory.affects(version) for version in ("1.5", "1.5.1", "0.9")] == [True, False, True]


def test_a_version_that_cannot_be_compared_counts_as_affected() -> None:
    assert pypi(AffectedRange(fixed="1.0")).affects("not-a-version")
    assert pypi(AffectedRange(fixed="1.0"), versions=("0.9",)).affects("not-a-version")
    assert pypi(AffectedRange(fixed="1.0"), versions=("0.9",)).affects("")
    assert pypi(*RANGES).fixed_after("not-a-version") == "1.4.2"  # so that a gate for fixed ones refuses it
    assert not pypi(versions=("1.0",)).affects("not-a-version")
    assert pypi(versions=("2004d",)).affects("2004d")


def test_debian_versions_have_dpkgs_order() -> None:
    advisory = Advisory(distribution="debian:12", package="a", id="CVE-1", ranges=(AffectedRange(fixed="1.0-1"),))
    assert [advisory.affects(version) for version in ("1.0~rc1-5", "1.0-1~deb12u1", "1.0-1", "1:0.1")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_old_versions_in_a_list_hide_no_others() -> None:
    advisory = pypi(AffectedRange(fixed="2.5"), versions=("2004d", "1.0.0", "0.9-ivysaur"))
    assert [advisory.affects(version) for version in ("1.0", "1.0+cpu", "2.4", "2.5")] == [True, True, True, False]
    assert advisory.affects("2004d")


def test_a_fix_that_cannot_be_compared_hides_no_other() -> None:
    advisory = pypi(AffectedRange(fixed="2004d"), AffectedRange(introduced="1.0", fixed="1.5"))
    assert (advisory.affects("1.2"), advisory.fixed_after("1.2")) == (True, "1.5")


def test_with_a_bound_that_cannot_be_compared_the_list_decides() -> None:
    odd = AffectedRange(fixed="2004d")
    assert pypi(odd).affects("1.2")
    assert [pypi(odd, versions=("1.0",)).affects(version) for version in ("1.0", "1.2")] == [True, False]


@pytest.mark.parametrize("key", ["package", "id", "versions", "aliases"])
def test_a_name_or_version_that_is_no_text_is_refused(key: str) -> None:
    keys: dict[str, Any] = {"package": "a", "id": "CVE-2026-1", key: (5,) if key.endswith("s") else 5}
    with pytest.raises(TypeError, match="5 is no text"):
        Advisory(distribution=PYPI, **keys)
