"""The documents' site: its navigation has every page once, by kind, and links to other files lead to the sources."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from torchbake.core.paths import TOOLKIT

DOCS = TOOLKIT / "docs"
KINDS = {
    "tutorial": "Tutorial", "how-to": "How-to guides", "reference": "Reference", "explanation": "Explanation",
    "internals": "Internals",
}  # fmt: skip
ROOT_PAGES = {"tutorial": "tutorial", "images": "reference"}  # pages in no folder of a kind


@pytest.fixture(scope="module")
def conf() -> dict[str, Any]:
    """Sphinx's configuration, which imports nothing of Sphinx."""
    return runpy.run_path(str(DOCS / "conf.py"))


def kind_of(page: Path) -> str:
    folder = page.relative_to(DOCS).parts[0]
    return ROOT_PAGES[page.stem] if page.parent == DOCS else folder


def test_the_navigation_has_each_page_in_the_section_of_its_kind(conf: dict[str, Any]) -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    listed = [(caption, page) for caption, pages in conf["navigation"](index) for page in pages]
    pages = [page for page in DOCS.rglob("*.md") if page.name != "README.md"]
    expected = [(KINDS[kind_of(page)], page.relative_to(DOCS).with_suffix("").as_posix()) for page in pages]
    assert sorted(listed) == sorted(expected), "docs/README.md needs a line for each page, in the section of its kind"


def test_the_navigation_is_appended_as_directives(conf: dict[str, Any]) -> None:
    text = conf["with_navigation"]("# A\n\n## B c\n\n- [x](d/e.md): f.\n- [y](d/g.md#h)\n\n## None\n\n[o](../o.md)\n")
    assert re.findall(r"(?s)```\{toctree\}\n(.*?)```", text) == [":hidden:\n:caption: B c\n\nd/e\n"]


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("../../matrix.yaml", "{}/blob/main/matrix.yaml"),
        ("../../ansible/README.md#variables", "{}/blob/main/ansible/README.md#variables"),
        ("../../examples", "{}/tree/main/examples"),
        ("../tutorial.md", "../tutorial.md"),
        ("#here", "#here"),
        ("https://example.com/x", "https://example.com/x"),
        ("../../no-such-file.md", "../../no-such-file.md"),
    ],
)
def test_a_link_out_of_the_documents_leads_to_the_sources(link: str, target: str, conf: dict[str, Any]) -> None:
    text = conf["with_outer_links"](f"[x]({link})", DOCS / "how-to/x.md")
    assert text == f"[x]({target.format(conf['SOURCES'])})"
