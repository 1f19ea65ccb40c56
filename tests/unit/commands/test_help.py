"""`help`: topics, pages, sections, and answers to a wrong name."""

import re

import pytest

from tests.unit.test_cli import err, out
from torchbake.core.paths import TOOLKIT


def test_help_lists_every_page_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    listed = out(capsys, "help")
    for page in (TOOLKIT / "docs").rglob("*.md"):
        if page.parent.name == "internals" or page.stem == "README":
            continue
        title = page.read_text().partition("\n")[0].removeprefix("# ")
        assert re.search(rf"(?m)^{page.stem} +[a-z-]* *{re.escape(title)} *$", listed), page


def test_help_prints_a_page_as_it_is_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    page = (TOOLKIT / "docs/explanation/tags.md").read_text()
    assert out(capsys, "help", "tags") == out(capsys, "help", "tags.md") == page


def test_help_prints_a_section_with_its_subsections(capsys: pytest.CaptureFixture[str]) -> None:
    page = (TOOLKIT / "docs/explanation/releases.md").read_text()
    section = out(capsys, "help", "releases#publish")
    assert section.startswith("## Publish\n")
    assert "\n### Compression\n" in section
    assert "\n## " not in section
    assert section in page


def test_help_names_what_there_is_for_a_wrong_word(capsys: pytest.CaptureFixture[str]) -> None:
    for topic, words in (
        ("relases", "releases"),
        ("build", "nox -s build -- --help"),
        ("xyzzy", "nox -s help"),
        ("tags#nothing", "make-them-immutable-in-the-registry"),
    ):
        assert words in err(capsys, "help", topic, code=2)
