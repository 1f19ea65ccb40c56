"""A plan's results as one HTML page that needs nothing else, in the styles of the report of all images. Pure."""

from collections.abc import Callable

from markupsafe import Markup

from torchbake.benchmark.run import figure, milliseconds
from torchbake.benchmark.summary import Group, Line, Point, Summary, Trace
from torchbake.core.sizes import human
from torchbake.report.html import own_file, render_template
from torchbake.report.svg import Part, bar, line


def render_page(summary: Summary, *, plan: str, made: str) -> str:
    """``made`` is an ISO time in UTC. Raises RenderError for a template that is broken."""
    values = {
        "summary": summary,
        "plan": plan,
        "made": made,
        "speed_bar": _speed_bar,
        "memory_bar": _memory_bar,
        "efficiency_bar": _efficiency_bar,
        "figures": _figures,
        "milliseconds": milliseconds,
        "signed": lambda part: f"{part:+.1%}",
        "figure": figure,
    }
    return render_template("benchmark", values, style=own_file("report.css") + own_file("benchmark.css"))


def _speed_bar(group: Group, one: Line) -> Markup:
    """On the scale of its experiment: others are other work."""
    fastest = max(each.result.throughput for each in group.lines)
    return _bar(one.result.throughput, fastest, f"{figure(one.result.throughput)} samples a second")


def _memory_bar(group: Group, one: Line) -> Markup:
    most = max(each.memory or 0 for each in group.lines)
    return _bar(one.memory or 0, most, human(one.memory or 0))


def _efficiency_bar(point: Point) -> Markup:
    """The full width is as many devices' worth of one; caches can bring more than that."""
    return _bar(min(1.0, point.efficiency), 1.0, f"{point.efficiency:.0%} of perfect scaling")


def _figures(trace: Trace) -> list[tuple[str, Markup, str]]:
    """Each figure of a time series: its name, its chart from 0 to the most, and the most."""
    rows = []
    for name, values in trace.series.figures.items():
        title, shown = _FIGURES[name]
        most = shown(max(value for value in values if value is not None))
        label = f"{title} of {trace.name}, {trace.place}, over {trace.series.seconds[-1]:.0f} s: at most {most}"
        rows.append((title, line(trace.series.seconds, values, title=label), most))
    return rows


_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "cpu_percent": ("CPU", "{:.0f}%".format),
    "memory_bytes": ("Memory", lambda value: human(int(value))),
    "gpu_percent": ("GPU", "{:.0f}%".format),
    "gpu_memory_bytes": ("GPU memory", lambda value: human(int(value))),
    "gpu_watts": ("GPU power", "{:.0f} W".format),
}


def _bar(size: float, whole: float, title: str) -> Markup:
    return bar((Part(size=size, kind="own"),), whole=whole, title=title, height=10)
