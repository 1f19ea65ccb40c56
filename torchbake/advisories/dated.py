"""The day of a scanner's report or of advisories, and its age. Pure."""

from dataclasses import dataclass
from datetime import UTC, date, datetime


@dataclass(frozen=True, kw_only=True)
class DatedInput:
    """The day of the input at a place. If its content has no date, the day is that of the file's last change."""

    place: str
    day: date
    of_file: bool = False

    def too_old(self, most_days: int, today: date) -> str:
        """Say that the input is older than a number of days; "" if it is not."""
        days = (today - self.day).days
        if days <= most_days:
            return ""
        source = " by the file's last change, as its content has no date" if self.of_file else ""
        return f"{self.place} is of {self.day}{source}: {days} days old, more than max_age_days: {most_days}"


def day_of_file(modified: float) -> date:
    """Return the day of a file's last change by UTC."""
    return datetime.fromtimestamp(modified, UTC).date()
