"""Records of OSV."""

import json
from datetime import date
from typing import Any

import pytest

from tests.unit.advisories.feeds import OSV
from torchbake.advisories.advisory import PYPI, Advisory, AdvisoryFormError, AffectedRange
from torchbake.advisories.finding import Severity
from torchbake.advisories.osv import distribution_of_ecosystem, is_osv, osv_advisories


def record(name: str, **changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((OSV / f"{name}.json").read_text())
    return content | changes


def test_a_python_record_has_its_cve_number_and_all_ranges() -> None:
    (advisory,) = osv_advisories(record("GHSA-aaaa-bbbb-cccc"), "osv")
    assert advisory == Advisory(
        distribution=PYPI, package="quill-tools", id="CVE-2026-2001", aliases=("GHSA-aaaa-bbbb-cccc", "PYSEC-2026-7"),
        ranges=(AffectedRange(fixed="1.4.2"), AffectedRange(introduced="2.0.0a1", fixed="2.0.1")),
        severity=Severity.HIGH, published=date(2026, 6, 2), source="osv",
    )  # fmt: skip


def test_commits_are_no_versions_and_events_are_sorted() -> None:
    (advisory,) = osv_advisories(record("PYSEC-2026-7"), "")
    assert advisory.ranges == (AffectedRange(fixed="1.4.2"),)
    assert advisory.versions == ("1.0.0", "1.4.0", "1.4.1")
    assert advisory.severity is Severity.UNKNOWN


def test_a_withdrawn_record_has_no_advisory() -> None:
    assert list(osv_advisories(record("PYSEC-2026-8"), "")) == []
    assert len(list(osv_advisories(record("PYSEC-2026-8", withdrawn=None), ""))) == 1


def test_a_debian_advisory_has_the_day_of_its_fix() -> None:
    advisories = list(osv_advisories(record("DSA-9001-1"), ""))
    assert [one.id for one in advisories] == ["CVE-2026-1001", "CVE-2026-1004"]
    for one in advisories:
        assert (one.distribution, one.package, one.aliases) == ("debian:12", "sealwax", ("DSA-9001-1",))
        assert (one.published, one.fixed_on) == (None, date(2026, 5, 20))


def test_an_older_advisory_has_its_numbers_as_related() -> None:
    old = record("DSA-9001-1", related=["CVE-2026-1005"])
    assert [one.id for one in osv_advisories(old, "")] == ["CVE-2026-1001", "CVE-2026-1004"]
    del old["upstream"]
    assert [one.id for one in osv_advisories(old, "")] == ["CVE-2026-1005"]


@pytest.mark.parametrize(
    ("aliases", "number"),
    [
        (["GHSA-x"], "GHSA-x"),
        ([], "PYSEC-2026-7"),
        (["CVE-2026-9000", "GHSA-x"], "CVE-2026-9000"),
        (["BIT-1"], "BIT-1"),
    ],
)
def test_a_record_without_a_cve_number_has_githubs(aliases: list[str], number: str) -> None:
    assert [one.id for one in osv_advisories(record("PYSEC-2026-7", aliases=aliases), "")] == [number]


@pytest.mark.parametrize(
    ("ecosystem", "distribution"),
    [
        ("PyPI", PYPI),
        ("Debian:12", "debian:12"),
        ("Ubuntu:24.04:LTS", "ubuntu:24.04"),
        ("Ubuntu:25.10", "ubuntu:25.10"),
        ("Ubuntu:Pro:22.04:LTS", ""),
        ("Debian", ""),
        ("npm", ""),
    ],
)
def test_an_ecosystem_is_a_distribution_of_images(ecosystem: str, distribution: str) -> None:
    assert distribution_of_ecosystem(ecosystem) == distribution


def test_a_later_introduction_opens_a_range_without_a_fix() -> None:
    events = [{"introduced": "3"}, {"last_affected": "1.9"}, {"introduced": "1"}]
    entry = {"package": {"ecosystem": "PyPI", "name": "a"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    (advisory,) = osv_advisories(record("PYSEC-2026-7", affected=[entry]), "")
    assert advisory.ranges == (AffectedRange(introduced="1", last="1.9"), AffectedRange(introduced="3"))


def test_a_severity_is_the_databases_word_or_of_the_vector() -> None:
    (advisory,) = osv_advisories(record("DEBIAN-CVE-2026-1001"), "")
    assert (advisory.id, advisory.aliases) == ("CVE-2026-1001", ("DEBIAN-CVE-2026-1001",))
    assert advisory.severity is Severity.CRITICAL
    worded = record("DEBIAN-CVE-2026-1001", database_specific={"severity": "MODERATE"})
    assert [one.severity for one in osv_advisories(worded, "")] == [Severity.MEDIUM]
    ubuntu = record("DEBIAN-CVE-2026-1001", severity=[{"type": "Ubuntu", "score": "negligible"}])
    assert [one.severity for one in osv_advisories(ubuntu, "")] == [Severity.NEGLIGIBLE]


def test_a_record_is_an_object_with_an_id_and_a_change() -> None:
    assert is_osv(record("PYSEC-2026-7"))
    assert not any(map(is_osv, ([], {}, {"id": "CVE-1"}, {"id": 1, "modified": "2026-01-01T00:00:00Z"})))


@pytest.mark.parametrize(
    "changes",
    [
        {"affected": [3]},
        {"affected": [{"package": {"ecosystem": "PyPI"}}]},
        {"affected": [{"package": {"ecosystem": "PyPI", "name": "a"}, "ranges": [{"events": []}]}]},
        {"published": "yesterday"},
        {"severity": [{"type": "CVSS_V3"}]},
    ],
    ids=str,
)
def test_a_broken_record_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(AdvisoryFormError, match="PYSEC-2026-7"):
        list(osv_advisories(record("PYSEC-2026-7", **changes), ""))


@pytest.mark.parametrize(
    "affected",
    [
        {"versions": "1.0"},
        {"versions": [1]},
        {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": 2}]}]},
        {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": 1.5}]}]},
        {"package": {"ecosystem": "PyPI", "name": None}},
        {"package": {"ecosystem": "Debian:12", "name": {"a": 1}}},
        {"package": {"ecosystem": ["PyPI"], "name": "a"}},
    ],
)
def test_values_that_are_no_text_are_refused(affected: dict[str, Any]) -> None:
    package = {"ecosystem": "PyPI", "name": "quill-tools"}
    broken = record("PYSEC-2026-7", affected=[{"package": package, **affected}])
    with pytest.raises(AdvisoryFormError, match="PYSEC-2026-7"):
        list(osv_advisories(broken, ""))


def test_an_event_without_a_version_is_passed_over() -> None:
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {}, {"fixed": "2"}]}]
    package = {"ecosystem": "PyPI", "name": "quill-tools"}
    (advisory,) = osv_advisories(record("PYSEC-2026-7", affected=[{"package": package, "ranges": ranges}]), "")
    assert advisory.ranges == (AffectedRange(fixed="2"),)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_a_range_may_begin_where_another_ends(order: tuple[int, ...]) -> None:
    events = [{"introduced": "0"}, {"introduced": "2.0"}, {"fixed": "2.0"}, {"fixed": "3.0"}]
    ranges = [{"type": "ECOSYSTEM", "events": [events[place] for place in order]}]
    affected = [{"package": {"ecosystem": "PyPI", "name": "quill-tools"}, "ranges": ranges}]
    (advisory,) = osv_advisories(record("PYSEC-2026-7", affected=affected), "")
    assert [advisory.affects(version) for version in ("1.9", "2.0", "2.5", "3.0")] == [True, True, True, False]


def test_a_range_may_have_one_version() -> None:
    ranges = [{"type": "ECOSYSTEM", "events": [{"last_affected": "2.0"}, {"introduced": "2.0"}]}]
    affected = [{"package": {"ecosystem": "PyPI", "name": "quill-tools"}, "ranges": ranges}]
    (advisory,) = osv_advisories(record("PYSEC-2026-7", affected=affected), "")
    assert [advisory.affects(version) for version in ("1.9", "2.0", "2.1")] == [False, True, False]
