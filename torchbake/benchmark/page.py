"""HTML page with a plan's results, self-contained, in the styles of the report of all images. Pure."""

from collections.abc import Callable

from markupsafe import Markup

from torchbake.benchmark.run import Done, figure, milliseconds
from torchbake.benchmark.summary import Group, Line, Point, Summary
from torchbake.core.sizes import human
from torchbake.report.html import own_file, render_template
from torchbake.report.svg import Part, bar, line


def render_page(summary: Summary, *, plan: str, made: str) -> str:
    """Return the page. ``made`` is an ISO time in UTC. Raise RenderError for a template that is broken."""
    values = {
        "summary": summary, "plan": plan, "made": made, "speed_bar": _speed_bar, "memory_bar": _memory_bar,
        "efficiency_bar": _efficiency_bar, "figures": _figures, "milliseconds": milliseconds, "figure": figure,
        "signed": lambda part: f"{part:+.1%}",
    }  # fmt: skip
    return render_template("benchmark", values, style=own_file("report.css") + own_file("benchmark.css"))


def _speed_bar(group: Group, one: Line) -> Markup:
    """Draw a throughput relative to the fastest of its experiment; other experiments are different work."""
    fastest = max(each.result.throughput for each in group.lines)
    return _bar(one.result.throughput, fastest, f"{figure(one.result.throughput)} samples a second")


def _memory_bar(group: Group, one: Line) -> Markup:
    most = max(each.memory or 0 for each in group.lines)
    return _bar(one.memory or 0, most, human(one.memory or 0))


def _efficiency_bar(point: Point) -> Markup:
    """Draw the efficiency relative to perfect scaling, which caches can exceed."""
    return _bar(min(1.0, point.efficiency), 1.0, f"{point.efficiency:.0%} of perfect scaling")


def _figures(trace: Done) -> list[tuple[str, Markup, str]]:
    """Return a row for each figure of a time series: its name, its chart, and its maximum."""
    assert trace.record
    assert trace.record.monitor
    rows, moments, name = [], trace.record.monitor.seconds, f"{trace.case.experiment.name}, {trace.case.place.name}"
    for figure_name, values in trace.record.monitor.figures.items():
        title, form = _FIGURES[figure_name]
        most = form(max(value for value in values if value is not None))
        label = f"{title} of {name}, over {moments[-1]:.0f} s: at most {most}"
        rows.append((title, line(moments, values, title=label), most))
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
