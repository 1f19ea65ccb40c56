"""The page about the waste of an image: whole HTML in one file, and whatever an image holds is text."""

from tests.unit.contents.test_waste import WASTE, entry, inventory
from tests.unit.report.test_html import ParsedPage
from torchbake.contents.waste import find_waste
from torchbake.contents.waste_kinds import KINDS
from torchbake.report.waste_page import render_waste_page


def test_each_kind_has_its_row_reason_remedy_and_files() -> None:
    for kind, files in WASTE.items():
        page = render_waste_page(find_waste(inventory(*files), gpus=[(9, 0)]))
        text = " ".join(ParsedPage(page).text)
        for part in (KINDS[kind].title, KINDS[kind].why, KINDS[kind].mend, "2 kB"):
            assert part in text, (kind, part)
        assert f'href="#{kind}"' in page
        assert any(f"/{file.path}" in text for file in files), kind


def test_the_page_is_whole_and_asks_nobody() -> None:
    page = render_waste_page(find_waste(inventory(*WASTE["gpu-code"], *WASTE["git"])))
    parsed = ParsedPage(page)
    assert parsed.open == []
    assert not [value for _, attributes in parsed.elements for value in attributes.values() if "//" in (value or "")]
    assert "--gpus 8.0,9.0" in page
    assert "sm_90" in page


def test_gpus_colour_the_code_that_none_of_them_runs() -> None:
    rows = ParsedPage(render_waste_page(find_waste(inventory(*WASTE["gpu-code"]), gpus=[(9, 0)]))).elements
    bars = [attributes["class"] for tag, attributes in rows if tag == "rect"]
    assert bars[-2:] == ["waste", "own"]


def test_hostile_names_are_text() -> None:
    image = inventory(entry("tmp/<script>alert(1)</script>\x1b[31m", 5))
    page = render_waste_page(find_waste(image))
    assert "<script>alert" not in page
    assert "\x1b" not in page


def test_an_image_without_waste_has_a_page() -> None:
    for image in (inventory(), inventory(entry("a", 5))):
        assert "nothing could go" in render_waste_page(find_waste(image))
