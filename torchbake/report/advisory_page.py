"""HTML page about the known vulnerabilities of images and the service level of their releases. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

from torchbake.advisories.episodes import Episode, JudgedRelease, ServiceLevel, by_number, episodes_of, service_levels
from torchbake.advisories.finding import Finding, Severity
from torchbake.advisories.judged import JudgedImage
from torchbake.advisories.match import first_day
from torchbake.report.html import own_file, render_template


@dataclass(frozen=True, kw_only=True)
class ImageHistory:
    """The releases of an image that could be judged, the oldest first, and the reasons for the others by tag."""

    id: str
    releases: tuple[JudgedRelease, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OpenRow:
    """A vulnerability with all ``images`` that have it, and all of their ``packages``."""

    id: str
    kind: str
    severity: Severity
    packages: tuple[str, ...]
    images: tuple[str, ...]
    fixed: tuple[str, ...]
    published: date | None
    fixed_on: date | None
    note: str


@dataclass(frozen=True)
class AdvisoryReport:
    """The open vulnerabilities of images, and the history of their releases; ``day`` is that of the report, by UTC."""

    images: tuple[JudgedImage, ...]
    histories: tuple[ImageHistory, ...]
    day: date
    selected: str = ""

    @cached_property
    def open(self) -> list[OpenRow]:
        """Return a row for each open vulnerability, the most severe first, and those with a fix before others."""
        return open_rows(self.images)

    @cached_property
    def episodes(self) -> list[Episode]:
        """Return the vulnerabilities of all releases: open ones first, then the most severe."""
        episodes = (one for history in self.histories for one in episodes_of(history.id, history.releases))
        return sorted(episodes, key=lambda one: (one.end is not None, -one.severity, one.id, one.image))

    @property
    def levels(self) -> list[ServiceLevel]:
        """Return the service level for each severity."""
        return service_levels(self.episodes, self.day)

    @property
    def json(self) -> dict[str, Any]:
        """Return the report as JSON; without a history, of the images alone."""
        images = {"day": self.day.isoformat(), "images": [image.json for image in self.images]}
        if not self.histories:
            return images
        return images | {
            "service": [_level_json(one) for one in self.levels],
            "history": [_episode_json(one, self.day) for one in self.episodes],
            "unread": [
                {"image": one.id, "tag": tag, "problem": problem}
                for one in self.histories
                for tag, problem in one.problems.items()
            ],
        }


def open_rows(images: tuple[JudgedImage, ...]) -> list[OpenRow]:
    """Return a row for each vulnerability of images, the most severe first, and those with a fix before others."""
    groups: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for image in images:
        for key, findings in by_number(image.findings).items():
            groups.setdefault(key, []).extend((image.id, one) for one in findings)
    rows = [_open_row(own) for own in groups.values()]
    return sorted(rows, key=lambda row: (-row.severity, not row.fixed, row.id))


def _open_row(own: list[tuple[str, Finding]]) -> OpenRow:
    findings = [finding for _, finding in own]
    return OpenRow(
        id=findings[0].id,
        kind=findings[0].kind,
        severity=max(one.severity for one in findings),
        packages=tuple(sorted({one.name for one in findings})),
        images=tuple(dict.fromkeys(name for name, _ in own)),
        fixed=tuple(sorted({one.fixed for one in findings if one.fixed})),
        published=first_day(*(one.published for one in findings)),
        fixed_on=first_day(*(one.fixed_on for one in findings)),
        note=next((one.note for one in findings if one.note), ""),
    )


def _level_json(level: ServiceLevel) -> dict[str, Any]:
    return {
        "severity": level.severity.word,
        "closures": level.closures,
        "median_days": level.median,
        "most_days": level.most,
        "waiting": level.waiting,
        "longest_days": level.longest,
        "unfixed": level.unfixed,
    }


def _episode_json(episode: Episode, day: date) -> dict[str, Any]:
    def text(value: date | None) -> str | None:
        return value.isoformat() if value else None

    return {
        "image": episode.image,
        "id": episode.id,
        "kind": episode.kind,
        "severity": episode.severity.word,
        "packages": list(episode.packages),
        "fixed": episode.fixed or None,
        "published": text(episode.published),
        "fixed_on": text(episode.fixed_on),
        "open_since": text(episode.open_since),
        "first": {"tag": episode.first.tag, "day": text(episode.first.day)},
        "end": {"tag": episode.end.tag, "day": text(episode.end.day)} if episode.end else None,
        "days": episode.days(day),
        "note": episode.note,
    }


def render_advisories(report: AdvisoryReport) -> str:
    """Return the page. Raise RenderError for an invalid template."""
    counts = {severity: sum(row.severity == severity for row in report.open) for severity in reversed(Severity)}
    values = {"report": report, "counts": {severity: count for severity, count in counts.items() if count}}
    return render_template("advisories", values, style=own_file("report.css") + own_file("advisories.css"))
