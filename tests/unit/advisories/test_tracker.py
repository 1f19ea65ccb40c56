"""The data of Debian's security tracker."""

import json
from typing import Any

import pytest

from tests.unit.advisories.feeds import TRACKER
from torchbake.advisories.advisory import Advisory, AdvisoryFormError, AffectedRange
from torchbake.advisories.finding import Severity
from torchbake.advisories.tracker import is_tracker, tracker_advisories, tracker_releases


@pytest.fixture
def data() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(TRACKER.read_text())
    return content


def test_each_release_that_is_affected_has_an_advisory(data: dict[str, Any]) -> None:
    advisories = {(one.id, one.distribution): one for one in tracker_advisories(data, "tracker.json")}
    assert set(advisories) == {
        ("CVE-2026-1001", "debian:12"),
        ("CVE-2026-1002", "debian:12"),
        ("CVE-2026-1002", "debian:13"),
        ("CVE-2026-1003", "debian:12"),
        ("TEMP-0000001-A1B2C3", "debian:12"),
    }
    assert advisories["CVE-2026-1001", "debian:12"] == Advisory(
        distribution="debian:12", package="sealwax", id="CVE-2026-1001", severity=Severity.HIGH,
        ranges=(AffectedRange(fixed="3.0.18-1~deb12u1"),), source="tracker.json",
    )  # fmt: skip


def test_an_open_vulnerability_has_no_fix_but_a_remark(data: dict[str, Any]) -> None:
    advisories = {(one.id, one.distribution): one for one in tracker_advisories(data, "")}
    low = advisories["CVE-2026-1002", "debian:12"]
    assert (low.severity, low.note, low.ranges) == (Severity.LOW, "postponed: Minor issue", (AffectedRange(),))
    assert "has not determined" in advisories["CVE-2026-1002", "debian:13"].note
    assert "support" in advisories["TEMP-0000001-A1B2C3", "debian:12"].note
    assert advisories["CVE-2026-1003", "debian:12"].severity is Severity.NEGLIGIBLE
    data["sealwax"]["CVE-2026-1002"]["releases"]["bookworm"]["next_point_update"] = True
    assert "point release" in next(one for one in tracker_advisories(data, "") if one.id == "CVE-2026-1002").note


def test_the_releases_are_those_of_the_data(data: dict[str, Any]) -> None:
    assert tracker_releases(data) == {"debian:12", "debian:13"}


@pytest.mark.parametrize("value", [{}, [], {"a": {}}, {"a": {"CVE-1": {}}}, {"results": []}, {"id": "x"}], ids=str)
def test_other_json_is_not_taken_for_the_tracker(value: Any, data: dict[str, Any]) -> None:
    assert is_tracker(data)
    assert not is_tracker(value)


@pytest.mark.parametrize(
    "release",
    [None, {}, {"status": "fixed"}, {"status": "open", "urgency": 3}, {"status": "resolved", "fixed_version": 1.5}],
    ids=str,
)
def test_a_broken_entry_names_its_package(data: dict[str, Any], release: Any) -> None:
    data["sealwax"]["CVE-2026-1001"]["releases"]["bookworm"] = release
    with pytest.raises(AdvisoryFormError, match="sealwax"):
        list(tracker_advisories(data, ""))
