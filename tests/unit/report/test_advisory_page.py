"""The page about known vulnerabilities: whole HTML in one file, and the same facts as JSON."""

from dataclasses import replace
from datetime import date

from tests.unit.advisories.test_episodes import OTHER, SEAL, TODAY, TOOL, release
from tests.unit.report.test_html import ParsedPage
from torchbake.advisories.finding import Severity
from torchbake.advisories.judged import JudgedImage
from torchbake.report.advisory_page import AdvisoryReport, ImageHistory, render_advisories

IMAGES = (
    JudgedImage(id="cpu", place="a:cpu", findings=(SEAL, TOOL, replace(SEAL, id="CVE-2026-1000", fixed=""))),
    JudgedImage(id="cuda", place="a:cuda", findings=(SEAL, OTHER), uncovered={"python": "pypi"}),
    JudgedImage(id="gone", place="a:gone", problem="it is not released"),
)
HISTORIES = (
    ImageHistory(
        id="cpu",
        releases=(release(0, date(2026, 4, 1), SEAL, OTHER), release(1, date(2026, 6, 2), SEAL)),
        problems={"cpu-r7": "it has no SBOM"},
    ),
    ImageHistory(id="cuda", releases=(release(0, date(2026, 4, 1), SEAL), release(1, date(2026, 6, 2)))),
)
REPORT = AdvisoryReport(IMAGES, HISTORIES, TODAY, "all")


def test_a_vulnerability_is_one_row_for_all_images() -> None:
    seal, unfixed, other = REPORT.open
    assert (seal.id, seal.packages, seal.images, seal.fixed) == (SEAL.id, ("libseal3", "seal"), ("cpu", "cuda"), ("2",))
    assert (unfixed.id, unfixed.severity) == ("CVE-2026-1000", Severity.HIGH)
    assert (other.id, other.kind) == (OTHER.id, "python")


def test_json_has_the_history_only_if_it_was_read() -> None:
    value = REPORT.json
    assert [(one["image"], one["id"], one["days"]) for one in value["history"]] == [
        ("cpu", SEAL.id, 42), ("cuda", SEAL.id, 13), ("cpu", OTHER.id, None),
    ]  # fmt: skip
    assert value["history"][1]["end"] == {"tag": "a-r1", "day": "2026-06-02"}
    assert value["service"][0] == {
        "severity": "high", "closures": 1, "median_days": 13, "most_days": 13, "waiting": 1, "longest_days": 42,
        "unfixed": 0,
    }  # fmt: skip
    assert value["unread"] == [{"image": "cpu", "tag": "cpu-r7", "problem": "it has no SBOM"}]
    assert set(replace(REPORT, histories=()).json) == {"day", "images"}


def test_the_page_is_whole_and_has_every_fact() -> None:
    parsed = ParsedPage(render_advisories(REPORT))
    assert parsed.open == []
    assert not [value for _, attributes in parsed.elements for value in attributes.values() if "//" in (value or "")]
    text = " ".join(parsed.text)
    for words in (
        SEAL.id,
        OTHER.id,
        "libseal3, seal",
        "a-r1",
        "42",
        "13",
        "it is not released",
        "it has no SBOM",
        "pypi",
    ):
        assert words in text, words


def test_hostile_text_of_a_file_is_text() -> None:
    hostile = replace(SEAL, id="<script>alert(1)</script>", note="\x1b[31m<b>")
    page = render_advisories(AdvisoryReport((JudgedImage(id="a", place="", findings=(hostile,)),), (), TODAY))
    assert "<script>alert" not in page
    assert "<b>" not in page
    assert "\x1b" not in page


def test_a_page_without_vulnerabilities_says_so() -> None:
    text = " ".join(ParsedPage(render_advisories(AdvisoryReport((), (), TODAY))).text)
    assert text.count("None is known.") == 2
