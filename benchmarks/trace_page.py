"""The self-contained page of a build: a lane for each stage over time, and tables. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from benchmarks.trace_steps import Step, shares, totals, whole
from torchbake.core.sizes import human
from torchbake.report.html import own_file

WIDTH, LEFT, ROW, GAP, AXIS = 1000, 110, 20, 8, 22
_LETTER = 6.3  # approximate units of a letter of the labels
_NICE = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A stage: its steps, each with its row, which is above 0 only if other steps of the stage run at that time."""

    stage: str
    placed: tuple[tuple[int, Step], ...]

    @property
    def rows(self) -> int:
        return 1 + max((row for row, _ in self.placed), default=0)


def lanes(steps: Sequence[Step]) -> tuple[Lane, ...]:
    """Return a lane for each stage, in the order of their starts; cached steps have no place."""
    stages = dict.fromkeys(step.stage for step in steps)
    return tuple(
        Lane(stage=stage, placed=_placed([step for step in steps if step.stage == stage and not step.cached]))
        for stage in stages
    )


def _placed(steps: Sequence[Step]) -> tuple[tuple[int, Step], ...]:
    """Place each step in the first row that is free at its start."""
    ends = list[float]()
    placed = list[tuple[int, Step]]()
    for step in steps:
        row = next((row for row, end in enumerate(ends) if end <= step.start), len(ends))
        ends[row : row + 1] = [step.end]
        placed.append((row, step))
    return tuple(placed)


def ticks(total: float) -> list[float]:
    """Return at most ten round numbers of seconds for the axis."""
    apart = next((nice for nice in _NICE if total / nice <= 10), _NICE[-1])
    return [number * apart for number in range(int(total / apart) + 1)]


def picture(steps: Sequence[Step]) -> Markup:
    """Return the lanes as an SVG with the colours of the page."""
    total = whole(steps) or 1.0
    matches, top = list[Markup](), AXIS
    for lane in lanes(steps):
        matches.append(_lane(lane, top, total))
        top += lane.rows * ROW + GAP
    axis = Markup("").join(_tick(moment, top, total) for moment in ticks(total))
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">')
    return (
        head.format(WIDTH, top, "A lane for each stage over time") + axis + Markup("").join(matches) + Markup("</svg>")
    )


def _lane(lane: Lane, top: int, total: float) -> Markup:
    label = Markup('<text class="stage" x="0" y="{}">{}</text>').format(top + 14, _cut(lane.stage, LEFT - 8))
    if not lane.placed:
        return label + Markup('<text class="soft" x="{}" y="{}">cached</text>').format(LEFT, top + 14)
    return label + Markup("").join(_bar(step, top + row * ROW, total) for row, step in lane.placed)


def _bar(step: Step, top: int, total: float) -> Markup:
    left, width = _x(step.start, total), max(1.0, step.seconds / total * (WIDTH - LEFT))
    size = "" if step.bytes is None else f", {human(step.bytes)}"
    title = f"{step.name}: {step.seconds:.1f} s from {step.start:.1f} s{size}"
    text = _cut(f"{step.seconds:.1f} s {step.name}", width - 8)
    label = Markup('<text x="{}" y="{}">{}</text>').format(_short(left + 4), top + 13, text) if text else Markup("")
    rectangle = Markup('<g class="{}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="2"/>{}</g>')
    return rectangle.format(step.kind, title, _short(left), top, _short(width), ROW - 2, label)


def _tick(moment: float, height: int, total: float) -> Markup:
    x = _short(_x(moment, total))
    line = Markup('<line x1="{}" x2="{}" y1="{}" y2="{}"/>').format(x, x, AXIS - 6, height)
    return line + Markup('<text class="soft" x="{}" y="10">{} s</text>').format(x, f"{moment:g}")


def _x(moment: float, total: float) -> float:
    return LEFT + moment / total * (WIDTH - LEFT)


def _short(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _cut(text: str, width: float) -> str:
    """Cut a text to a width; return nothing if less than five letters fit."""
    most = int(width / _LETTER)
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…" if most >= 5 else ""


def kind_rows(steps: Sequence[Step]) -> list[tuple[str, ...]]:
    """Return kind, number of steps, their seconds, and their share of the build's time."""
    return [(one.kind, str(one.steps), f"{one.seconds:.1f} s", f"{one.share:.1%}") for one in totals(steps)]


def step_rows(steps: Sequence[Step]) -> list[tuple[str, ...]]:
    """Return stage, step, kind, start, seconds or "cached", bytes, and share of the build's time."""
    total = whole(steps) or 1.0
    return [
        (step.stage, step.name, step.kind, f"{step.start:.1f} s", "cached" if step.cached else f"{step.seconds:.1f} s",
         "" if step.bytes is None else human(step.bytes), f"{share / total:.1%}")
        for step, share in zip(steps, shares(steps), strict=True)
    ]  # fmt: skip


KIND_HEAD = ("kind", "steps", "seconds", "of the whole")
STEP_HEAD = ("stage", "step", "kind", "start", "seconds", "bytes", "of the whole")


def render_page(steps: Sequence[Step], *, title: str) -> str:
    """Render the page of a build; ``title`` is the image's name."""
    ran = [step for step in steps if not step.cached]
    kinds = dict.fromkeys(one.kind for one in totals(steps) if one.kind != "waiting" and one.seconds)
    legend = Markup(" ").join(Markup('<span class="key {}">{}</span>').format(kind, kind) for kind in kinds)
    head = f"{whole(steps):.1f} s · {len(ran)} steps ran · {len(steps) - len(ran)} were cached"
    return _PAGE.format(
        title=title,
        style=Markup(own_file("report.css") + Path(__file__).with_name("trace.css").read_text(encoding="utf-8")),
        head=head,
        picture=picture(steps),
        legend=legend,
        kinds_note=_KINDS_NOTE,
        kinds=_table(KIND_HEAD, kind_rows(steps)),
        steps=_table(STEP_HEAD, step_rows(steps)),
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    figures = {"steps", "start", "seconds", "bytes", "of the whole"}
    classes = ["number" if name in figures else "" for name in head]
    cell = Markup('<{0} class="{1}">{2}</{0}>')
    lines = [("th", head), *(("td", row) for row in rows)]
    texts = (
        Markup("").join(cell.format(tag, name, text) for name, text in zip(classes, line, strict=True))
        for tag, line in lines
    )
    body = Markup("\n").join(Markup("<tr>{}</tr>").format(text) for text in texts)
    return Markup("<table>{}</table>").format(body)


_KINDS_NOTE = (
    "Steps that run side by side share their seconds, so the last column adds up; waiting is when none ran, as while a "
    "cache is looked up. To download, install, trim, strip and compile wheels is one step of BuildKit, and one kind."
)
_PAGE = Markup("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header><p class="soft">{head}</p><h1>{title}</h1></header>
<main>
<section><h2>Over time</h2>
<p class="soft">A lane is a stage. Point at a step for its whole name. The export comes last.</p>
<div class="picture" tabindex="0">{picture}</div>
<p class="legend soft">{legend}</p></section>
<section><h2>Kinds</h2>
<p class="soft">{kinds_note}</p>
{kinds}</section>
<section><h2>Steps</h2>
{steps}</section>
</main>
</body>
</html>
""")
