"""A plan's results as one HTML page that needs nothing else, in the styles of the report of all images. Pure."""

from markupsafe import Markup

from torchbake.benchmark.run import figure, milliseconds
from torchbake.benchmark.summary import Group, Line, Point, Summary
from torchbake.core.sizes import human
from torchbake.report.html import own_file, render_template
from torchbake.report.svg import Part, bar


def render_page(summary: Summary, *, plan: str, made: str) -> str:
    """``made`` is an ISO time in UTC. Raises RenderError for a template that is broken."""
    values = {
        "summary": summary,
        "plan": plan,
        "made": made,
        "speed_bar": _speed_bar,
        "memory_bar": _memory_bar,
        "efficiency_bar": _efficiency_bar,
        "milliseconds": milliseconds,
        "signed": lambda part: f"{part:+.1%}",
        "figure": figure,
    }
    return render_template("benchmark", values, style=own_file("report.css") + own_file("benchmark.css"))


def _speed_bar(group: Group, line: Line) -> Markup:
    """On the scale of its experiment: others are other work."""
    fastest = max(each.result.throughput for each in group.lines)
    return _bar(line.result.throughput, fastest, f"{figure(line.result.throughput)} samples a second")


def _memory_bar(group: Group, line: Line) -> Markup:
    most = max(each.memory or 0 for each in group.lines)
    return _bar(line.memory or 0, most, human(line.memory or 0))


def _efficiency_bar(point: Point) -> Markup:
    """The full width is as many devices' worth of one; caches can bring more than that."""
    return _bar(min(1.0, point.efficiency), 1.0, f"{point.efficiency:.0%} of perfect scaling")


def _bar(size: float, whole: float, title: str) -> Markup:
    return bar((Part(size=size, kind="own"),), whole=whole, title=title, height=10)
