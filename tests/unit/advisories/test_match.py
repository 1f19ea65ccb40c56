"""Findings of an image by the small files of advisories."""

from dataclasses import replace
from datetime import date

from tests.unit.advisories.feeds import OSV, TRACKER, deb, image, wheel
from torchbake.advisories.feeds import read_feeds
from torchbake.advisories.finding import Finding, Severity
from torchbake.advisories.match import Feeds, feeds_of, findings_of, merge_findings, uncovered

OLD, FIXED = "3.0.17-1~deb12u2", "3.0.18-1~deb12u1"
FINDING = Finding(kind="python", name="a", version="1", id="CVE-2026-1", source="one")


def numbers(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(one.name, one.id) for one in findings]


def test_a_binary_package_has_the_findings_of_its_source() -> None:
    tracker = read_feeds([str(TRACKER)])
    for version in (f"{OLD}+b1", "1:9.0-1"):  # a binary package may have a version of its own
        findings = findings_of(image(deb("libseal3", version, "sealwax", OLD)), tracker)
        assert [(one.name, one.version, one.id, one.fixed) for one in findings] == [
            ("libseal3", version, "CVE-2026-1001", FIXED),
            ("libseal3", version, "CVE-2026-1002", ""),
            ("libseal3", version, "CVE-2026-1003", ""),
        ]
    assert numbers(findings_of(image(deb("sealwax", OLD, "other")), tracker)) == []


def test_a_fixed_version_has_only_what_is_open() -> None:
    findings = findings_of(image(deb("libseal3", FIXED, "sealwax")), read_feeds([str(TRACKER)]))
    assert [(one.id, one.fixed) for one in findings] == [("CVE-2026-1002", ""), ("CVE-2026-1003", "")]


def test_each_release_of_debian_has_its_own_findings() -> None:
    tracker = read_feeds([str(TRACKER)])
    trixie = findings_of(image(deb("sealwax", "3.5.1-1"), system="debian-13"), tracker)
    assert numbers(trixie) == [("sealwax", "CVE-2026-1002")]


def test_findings_of_several_files_are_joined() -> None:
    feeds = read_feeds([str(TRACKER), str(OSV)])
    first, second = findings_of(image(deb("libseal3", OLD, "sealwax")), feeds)[::3]
    assert first == Finding(
        kind="debian", name="libseal3", version=OLD, id="CVE-2026-1001", severity=Severity.CRITICAL, fixed=FIXED,
        published=date(2026, 5, 11), fixed_on=date(2026, 5, 20), aliases=("DEBIAN-CVE-2026-1001", "DSA-9001-1"),
        source=f"{TRACKER}, {OSV}",
    )  # fmt: skip
    assert (second.id, second.fixed_on, second.published) == ("CVE-2026-1004", date(2026, 5, 20), None)


def test_records_of_one_python_vulnerability_are_one_finding() -> None:
    (finding,) = findings_of(image(wheel("quill-tools", "1.4.1")), read_feeds([str(OSV)]))
    assert (finding.id, finding.fixed, finding.severity) == ("CVE-2026-2001", "1.4.2", Severity.HIGH)
    assert finding.published == date(2026, 6, 2)
    assert findings_of(image(wheel("quill-tools", "1.4.2")), read_feeds([str(OSV)])) == ()


def test_packages_that_no_file_judges_are_named() -> None:
    both = image(deb("sealwax", OLD), wheel("quill-tools", "1.4.1"))
    assert uncovered(both, Feeds()) == {"debian": "debian:12", "python": "pypi"}
    assert uncovered(both, read_feeds([str(TRACKER)])) == {"python": "pypi"}
    assert uncovered(both, read_feeds([str(OSV)])) == {}
    assert uncovered(both, feeds_of((), ["debian:12"])) == {"python": "pypi"}  # a file without advisories
    ubuntu = image(deb("sealwax", OLD), system="ubuntu-24.04")
    assert uncovered(ubuntu, read_feeds([str(TRACKER), str(OSV)])) == {"debian": "ubuntu:24.04"}
    assert uncovered(image(deb("sealwax", OLD), system=""), Feeds()) == {"debian": "unknown:unknown"}


def test_the_worst_severity_and_any_fix_are_kept() -> None:
    other = replace(FINDING, severity=Severity.LOW, fixed="2", note="postponed", source="two", aliases=("GHSA-1",))
    (joined,) = merge_findings([FINDING, other])
    assert joined == replace(other, source="one, two")
    assert merge_findings([other, FINDING]) == (replace(other, source="two, one"),)
    assert merge_findings([FINDING, replace(other, aliases=("CVE-2026-1", "GHSA-1"))]) == (joined,)


def test_findings_are_sorted() -> None:
    findings = (FINDING, replace(FINDING, id="CVE-2026-2"), replace(FINDING, version="2"), replace(FINDING, name="b"))
    assert merge_findings(findings[::-1]) == findings
