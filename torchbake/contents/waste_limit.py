"""The waste that an image may have, as an option states it. Pure."""

import re
from dataclasses import dataclass

from torchbake.contents.waste_report import WasteReport
from torchbake.core.sizes import human, parse_size


@dataclass(frozen=True, kw_only=True)
class WasteLimit:
    """A number of bytes, or a part of the image's bytes: 0.05 is 5 %. ``text`` is as the user wrote it."""

    text: str
    size: int | None = None
    share: float | None = None

    def exceeded_by(self, report: WasteReport) -> bool:
        if self.share is not None:
            return report.share > self.share
        return report.wasted > (self.size or 0)


def parse_limit(text: str) -> WasteLimit:
    """Read ``100MB``, ``1.5GB``, ``0`` or ``5%``. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if match:
        return WasteLimit(text=text, share=float(match[1]) / 100)
    if re.fullmatch(r"\d+(\.\d+)?", text.strip()) and text.strip("0. "):
        raise ValueError(f"{text} has no unit; write it as {text.strip()}MB or {text.strip()}%")
    try:
        return WasteLimit(text=text, size=parse_size(text))
    except ValueError:
        raise ValueError(f"{text!r} is neither a size nor a percentage; write it as 100MB or 5%") from None


def headline(report: WasteReport) -> str:
    """Return the result in a sentence."""
    without = f" (without {', '.join(report.ignored)})" if report.ignored else ""
    if not report.wasted:
        return f"{human(report.size)}, of which nothing could go{without}"
    return f"{human(report.size)}, of which {human(report.wasted)} could go: {percent(report.share)}{without}"


def percent(share: float) -> str:
    """Format a part of a whole: ``31 %``, ``0.4 %``."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or not value else f"{value:.1f} %" if value >= 0.05 else "< 0.1 %"
