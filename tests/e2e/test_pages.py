"""The pages of report, waste, diff, benchmark and advisories on three screens: every column can be seen."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from tests.unit.benchmark.test_page import page as benchmark_page
from tests.unit.contents.inventories import entry, image, package
from tests.unit.contents.test_waste import WASTE, inventory
from tests.unit.report.test_advisory_page import REPORT
from tests.unit.report.test_catalogue import catalogue
from torchbake.contents.compare import compare_images
from torchbake.contents.waste import find_waste
from torchbake.report.advisory_page import render_advisories
from torchbake.report.diff_page import render_diff
from torchbake.report.html import render_page
from torchbake.report.waste_page import render_waste_page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser to look with")

pytestmark = pytest.mark.report
SIZES = ((360, 780), (768, 1024), (1280, 900))


def diff_page() -> str:
    before = image(entry("p/x"), entry("f", "old"), packages=[package("p", "1.0", "p/x")])
    after = image(entry("p/x", "xyz"), entry("f", "new"), entry("d/1"), packages=[package("p", "2.0", "p/x")])
    return render_diff(compare_images(before, after))


PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: render_page(catalogue()),
    "waste": lambda: render_waste_page(find_waste(inventory(*(file for files in WASTE.values() for file in files)))),
    "diff": diff_page,
    "benchmark": benchmark_page,
    "advisories": lambda: render_advisories(REPORT),
}


@pytest.mark.long  # test_report.py looks at the largest page
def test_every_column_can_be_seen_on_every_screen(tmp_path: Path) -> None:
    from tests.e2e.browser import NoBrowserError, chromium, faults_of_page  # noqa: PLC0415 - it needs playwright

    try:
        with chromium(ROOT / ".torchbake/tools/chromium") as browser:
            for name, size in itertools.product(PAGES, SIZES):
                page = tmp_path / f"{name}.html"
                page.write_text(PAGES[name](), encoding="utf-8")
                assert faults_of_page(browser, page, size, "light", tmp_path / f"{name}-{size[0]}.png") == [], name
    except NoBrowserError as error:
        pytest.skip(f"no browser: {error}")
