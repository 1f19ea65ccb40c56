"""Vulnerabilities over the releases of an image, and the days until a release had a fix."""

from dataclasses import replace
from datetime import date

from torchbake.advisories.episodes import Episode, JudgedRelease, ServiceLevel, episodes_of, service_levels
from torchbake.advisories.finding import Finding, Severity

TODAY = date(2026, 7, 1)
SEAL = Finding(
    kind="debian", name="libseal3", version="1", id="CVE-2026-1001", severity=Severity.HIGH, fixed="2",
    published=date(2026, 5, 11), fixed_on=date(2026, 5, 20),
)  # fmt: skip
TOOL = replace(SEAL, name="seal", published=None)
OTHER = Finding(kind="python", name="quill", version="1", id="CVE-2026-2001", published=date(2026, 3, 1))


def release(number: int, day: date, *findings: Finding) -> JudgedRelease:
    return JudgedRelease(tag=f"a-r{number}", day=day, findings=findings)


def only(*releases: JudgedRelease) -> Episode:
    (episode,) = episodes_of("a", releases)
    return episode


def test_a_vulnerability_lasts_until_no_package_has_it() -> None:
    first, second = release(0, date(2026, 4, 1), SEAL, TOOL), release(1, date(2026, 5, 25), TOOL)
    third = release(2, date(2026, 6, 2))
    episode = only(first, second, third)
    assert (episode.first, episode.end, episode.packages) == (first, third, ("libseal3", "seal"))
    assert (episode.published, episode.fix_since) == (None, SEAL.fixed_on)  # of the last release that has it
    assert episode.days(TODAY) == 13


def test_an_episode_has_the_worst_severity_of_its_packages() -> None:
    worse = replace(TOOL, severity=Severity.CRITICAL)
    for findings in ((SEAL, worse), (worse, SEAL)):
        assert only(release(0, date(2026, 4, 1), *findings)).severity is Severity.CRITICAL


def test_days_count_from_the_fix_and_run_on_while_open() -> None:
    episode = only(release(0, date(2026, 4, 1), SEAL))
    assert (episode.end, episode.open_since, episode.days(TODAY)) == (None, date(2026, 5, 11), 42)


def test_days_count_from_a_release_that_ignored_the_fix() -> None:
    episode = only(release(0, date(2026, 6, 1), SEAL), release(1, date(2026, 6, 3)))
    assert (episode.fix_since, episode.days(TODAY)) == (date(2026, 6, 1), 2)


def test_a_fix_in_a_release_before_its_advisory_took_no_days() -> None:
    assert only(release(0, date(2026, 4, 1), SEAL), release(1, date(2026, 5, 1))).days(TODAY) == 0


def test_a_fix_without_a_day_has_no_days() -> None:
    episode = only(release(0, date(2026, 4, 1), OTHER), release(1, date(2026, 5, 1)))
    assert (episode.days(TODAY), episode.open_since) == (None, date(2026, 4, 1))


def test_a_vulnerability_that_returns_begins_again() -> None:
    days = [date(2026, 6, day) for day in (1, 2, 3)]
    episodes = episodes_of("a", [release(0, days[0], SEAL), release(1, days[1]), release(2, days[2], SEAL)])
    assert [(one.first.tag, one.end and one.end.tag) for one in episodes] == [("a-r0", "a-r1"), ("a-r2", None)]


def test_the_service_level_counts_each_severity() -> None:
    start = date(2026, 4, 1)
    episodes = [
        only(release(0, start, SEAL), release(1, date(2026, 5, 21))),
        only(release(0, start, SEAL), release(1, date(2026, 5, 30))),
        only(release(0, start, replace(SEAL, fixed_on=None)), release(1, date(2026, 6, 30))),
        only(release(0, start, SEAL)),
        only(release(0, start, replace(SEAL, fixed="", fixed_on=None))),
        only(release(0, start, OTHER)),
    ]
    assert service_levels(episodes, TODAY) == [
        ServiceLevel(severity=Severity.HIGH, closures=3, median=5.5, most=10, waiting=1, longest=42, unfixed=1),
        ServiceLevel(severity=Severity.UNKNOWN, closures=0, median=None, most=None, waiting=0, longest=None, unfixed=1),
    ]
    assert service_levels([], TODAY) == []
