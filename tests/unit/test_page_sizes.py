"""Explanations, references and internals are pages of at most 400 lines."""

from torchbake.core.paths import TOOLKIT

MOST_LINES = 400
FOLDERS = ("explanation", "reference", "internals")


def test_no_page_has_more_than_400_lines() -> None:
    pages = [page for folder in FOLDERS for page in (TOOLKIT / "docs" / folder).glob("*.md")]
    assert len(pages) > len(FOLDERS)
    assert [page.name for page in pages if len(page.read_text(encoding="utf-8").splitlines()) > MOST_LINES] == []
