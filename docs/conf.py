"""The configuration of the documentation's site for Sphinx, which `nox -s docs` builds from these pages.

The pages are Markdown as GitHub shows it. The navigation is that of README.md: a caption for each of its sections, and
the pages that the section links. Links to files outside this folder lead to the repository.
"""

import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
SOURCES = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Homepage"]
INDEX = "README"

project = "torchbake"
html_title = "torchbake"
author = "The torchbake authors"
project_copyright = author
extensions = ["myst_parser", "sphinx_copybutton", "sphinxcontrib.mermaid"]
source_suffix = {".md": "markdown"}
root_doc = INDEX
myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]
mermaid_fullscreen = False
mermaid_height = "auto"
highlight_language = "text"
html_theme = "furo"
html_theme_options = {"source_repository": SOURCES, "source_branch": "main", "source_directory": "docs/"}
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
smartquotes = False  # the -- of an option stays as it is


def navigation(index: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the sections of the index: the heading of each, and its pages in this folder without their suffix."""
    for section in re.split(r"(?m)^## ", index)[1:]:
        pages = re.findall(r"\]\(([\w./-]+)\.md\)", section)
        yield section.partition("\n")[0], [page for page in dict.fromkeys(pages) if not page.startswith("..")]


def with_navigation(index: str) -> str:
    """Append the navigation to the index, as directives that Sphinx reads and that show nothing on the page."""
    trees = (
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])
        for caption, pages in navigation(index)
        if pages
    )
    return "\n\n".join([index, *trees, ""])


def with_outer_links(text: str, page: Path) -> str:
    """Let links to existing files outside this folder lead to the repository. Other links stay as they are."""

    def outer(match: re.Match[str]) -> str:
        path, _, heading = match[1].partition("#")
        target = (page.parent / path).resolve()
        if not path or target.is_relative_to(FOLDER) or not target.exists():
            return match[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"]({SOURCES}/{kind}/main/{target.relative_to(FOLDER.parent)}{'#' if heading else ''}{heading})"

    return re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", outer, text)


def setup(app: Any) -> None:
    app.connect("source-read", _read)
    app.connect("build-finished", _make_front)


def _read(app: Any, page: str, content: list[str]) -> None:
    text = with_outer_links(content[0], Path(app.env.doc2path(page)))
    content[0] = with_navigation(text) if page == INDEX else text


def _make_front(app: Any, error: Exception | None) -> None:
    """Copy the index to the name that web servers serve for a folder."""
    if not error:
        shutil.copy(Path(app.outdir) / f"{INDEX}.html", Path(app.outdir) / "index.html")
