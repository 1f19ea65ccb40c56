"""The findings of an image that count."""

from tests.unit.advisories.feeds import OSV, TRACKER, deb, image, wheel
from torchbake.advisories.feeds import read_feeds
from torchbake.advisories.finding import Severity
from torchbake.advisories.judged import Scope, judge_image
from torchbake.advisories.match import Feeds

IMAGE = image(deb("sealwax", "3.0.17-1~deb12u2"), wheel("quill-tools", "1.4.1"))


def numbers(scope: Scope) -> list[str]:
    judged = judge_image("cpu", "a:cpu", IMAGE, read_feeds([str(TRACKER), str(OSV)]), scope)
    return [one.id.removeprefix("CVE-2026-") for one in judged.findings]


def test_a_scope_selects_by_kind_severity_and_fix() -> None:
    assert numbers(Scope()) == ["1001", "1002", "1003", "1004", "2001"]
    assert numbers(Scope(kind="python")) == ["2001"]
    assert numbers(Scope(kind="debian", severity=Severity.LOW)) == ["1001", "1002"]
    assert numbers(Scope(ignored=frozenset({"sealwax"}))) == ["2001"]
    assert numbers(Scope(fixable=True)) == ["1001", "1004", "2001"]


def test_only_kinds_in_scope_must_be_covered() -> None:
    assert judge_image("cpu", "", IMAGE, Feeds(), Scope(kind="python")).uncovered == {"python": "pypi"}
    assert set(judge_image("cpu", "", IMAGE, Feeds(), Scope()).uncovered) == {"debian", "python"}


def test_json_has_null_for_unknown_values() -> None:
    judged = judge_image("cpu", "a:cpu", IMAGE, read_feeds([str(TRACKER)]), Scope(severity=Severity.LOW), digest="d")
    first, second = judged.json["findings"]
    assert first == {
        "kind": "debian", "package": "sealwax", "version": "3.0.17-1~deb12u2", "id": "CVE-2026-1001",
        "severity": "high", "fixed": "3.0.18-1~deb12u1", "published": None, "fixed_on": None, "aliases": [],
        "note": "", "source": str(TRACKER),
    }  # fmt: skip
    assert (second["fixed"], second["note"]) == (None, "postponed: Minor issue")
    assert {**judged.json, "findings": []} == {
        "id": "cpu", "place": "a:cpu", "digest": "d", "problem": "", "uncovered": {"python": "pypi"}, "findings": [],
    }  # fmt: skip
