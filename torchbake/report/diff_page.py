"""HTML page about the differences of two images, self-contained. Pure."""

from markupsafe import Markup

from torchbake.contents.change_text import describe_file, describe_folder, growth, signed, tally
from torchbake.contents.compare import ImageComparison
from torchbake.contents.folder_groups import by_folder
from torchbake.core.sizes import human
from torchbake.report.html import own_file, render_template
from torchbake.report.svg import Part, bar

_ROWS = 30  # folders and files of the page
_MOST = 500  # files of a folder or a package that the page lists


def render_diff(comparison: ImageComparison) -> str:
    """Return the page. Raise RenderError for an invalid template."""
    values = {
        "comparison": comparison,
        "layers": [(kind, layer) for kind, own in comparison.layers.changes.items() for layer in own],
        "groups": by_folder(comparison.files, _ROWS),
        "largest": max([1, *(max(each.size_before, each.size_after) for each in comparison.packages)]),
        "most": _MOST,
        "size_bar": _size_bar,
        "growth": growth,
        "describe_file": describe_file, "describe_folder": describe_folder, "signed": signed,
        "tally": tally,
    }  # fmt: skip
    return render_template("diff", values, style=own_file("report.css") + own_file("diff.css"))


def _size_bar(before: int, after: int, largest: int) -> Markup:
    """Draw the bytes that both images have, and the rest of the larger one."""
    common, rest = min(before, after), abs(after - before)
    parts = (Part(size=common, kind="shared"), Part(size=rest, kind="own" if after > before else "less"))
    return bar(parts, whole=largest, title=f"{human(before)} before, {human(after)} after", height=6)
