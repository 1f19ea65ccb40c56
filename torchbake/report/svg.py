"""Charts as inline SVG, without scripts, fonts and other files. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from torchbake.core.sizes import human
from torchbake.report.layer_sharing import Breakdown

WIDTH = 1000  # units of a bar's box; the page stretches it


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a bar. ``kind`` is a class in the page's styles; ``label`` is shown under the pointer."""

    size: float
    kind: str
    label: str = ""


def parts_of(breakdown: Breakdown) -> tuple[Part, ...]:
    """Return an image's layers for `bar`: its own first, then the shared ones, each from large to small."""
    ordered = sorted(breakdown.layers, key=lambda layer: (bool(layer.others), -layer.size, layer.name))
    return tuple(
        Part(size=layer.size, kind="shared" if layer.others else "own", label=f"{layer.name}: {human(layer.size)}")
        for layer in ordered
    )


def bar(parts: Sequence[Part], *, whole: float, title: str, height: int = 14) -> Markup:
    """Draw adjacent pieces; ``whole`` is the size of the full width. Screen readers read the ``title``."""
    pieces, start = [], 0.0
    for part in parts:
        width = WIDTH * part.size / whole if whole else 0.0
        if width:
            label = Markup("<title>{}</title>").format(part.label) if part.label else ""
            piece = Markup('<rect class="{}" x="{}" width="{}" height="{}">{}</rect>')
            pieces.append(piece.format(part.kind, _short(start), _short(width), height, label))
        start += width
    head = Markup('<svg class="bar" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">')
    return head.format(WIDTH, height, title) + Markup("").join(pieces) + Markup("</svg>")


def line(moments: Sequence[float], values: Sequence[float | None], *, title: str, height: int = 40) -> Markup:
    """Draw values over time, from 0 to the largest; the line skips missing values. ``title`` is as for `bar`."""
    known_names = [(moment, value) for moment, value in zip(moments, values, strict=True) if value is not None]
    first, span = moments[0], (moments[-1] - moments[0]) or 1.0
    top = max((value for _, value in known_names), default=0.0) or 1.0
    places = [(WIDTH * (moment - first) / span, height * (1 - value / top)) for moment, value in known_names]
    if len(places) == 1:
        places.append((float(WIDTH), places[0][1]))
    points = " ".join(f"{_short(x)},{_short(y)}" for x, y in places)
    text = Markup(
        '<svg class="line" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polyline points="{}"/></svg>'
    )
    return text.format(WIDTH, height, title, points)


def _short(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")
