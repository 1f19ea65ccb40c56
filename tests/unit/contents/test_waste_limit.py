"""Limits of waste, and the sentence about it."""

import pytest

from tests.unit.contents.test_waste import entry, inventory
from torchbake.contents.waste import find_waste
from torchbake.contents.waste_limit import headline, parse_limit, percent


def test_a_limit_is_a_size_or_a_percentage() -> None:
    report = find_waste(inventory(entry("tmp/a", 50_000), entry("opt/a", 950_000)))
    for text, expected in (
        ("50kB", False),
        ("49.9kB", True),
        ("0", True),
        ("1GB", False),
        ("5%", False),
        ("4.9 %", True),
        ("100%", False),
    ):
        assert parse_limit(text).exceeded_by(report) == expected, text


def test_other_texts_are_refused() -> None:
    for text in ("", "many", "5 percent", "-1MB", "%", "...", "1.2.3"):
        with pytest.raises(ValueError, match="100MB or 5%"):
            parse_limit(text)


def test_a_number_needs_a_unit() -> None:
    for text in ("5", "0.5", " 100 "):
        with pytest.raises(ValueError, match=f"has no unit; write it as {text.strip()}MB or {text.strip()}%"):
            parse_limit(text)


def test_an_empty_image_exceeds_no_limit() -> None:
    report = find_waste(inventory())
    assert report.share == 0
    assert not parse_limit("0").exceeded_by(report)
    assert not parse_limit("0%").exceeded_by(report)


def test_the_headline_has_the_bytes_and_their_share() -> None:
    assert headline(find_waste(inventory(entry("tmp/a", 310_000), entry("a", 690_000)))) == (
        "1 MB, of which 310 kB could go: 31 %"
    )
    assert headline(find_waste(inventory(entry("a", 5)))) == "5 B, of which nothing could go"


def test_percentages_are_short() -> None:
    texts = {0.0: "0 %", 0.0001: "< 0.1 %", 0.004: "0.4 %", 0.05: "5.0 %", 0.314: "31 %", 1.0: "100 %"}
    assert {share: percent(share) for share in texts} == texts
