"""The report's picture: its overview and its first image, as a browser shows them."""

from pathlib import Path

from tests.e2e.browser import chromium

WIDTH = 1200  # pixels
_PAGE = 1000  # CSS pixels across: letters are larger then, and can be read in a README


def photograph(page: Path, picture: Path, *, tools: Path) -> None:
    """A PNG of the page from its top to where its first image names its tags. Raises NoBrowserError."""
    with chromium(tools) as browser:
        view = browser.new_page(
            viewport={"width": _PAGE, "height": _PAGE}, device_scale_factor=WIDTH / _PAGE, color_scheme="light"
        )
        view.goto(page.as_uri())
        end = view.locator("article h4", has_text="Tags").first.bounding_box()
        assert end, "the page shows no image"
        view.screenshot(
            path=picture, full_page=True, clip={"x": 0, "y": 0, "width": _PAGE, "height": round(end["y"]) - 10}
        )
