"""The page about the differences of two images: all of them, as text and never as markup."""

from tests.unit.contents.inventories import entry, image, package
from tests.unit.report.test_html import ParsedPage
from torchbake.contents.compare import compare_images
from torchbake.report.diff_page import render_diff

HOSTILE = "<img src=x>"


def test_the_page_has_every_part_and_closes_what_it_opens() -> None:
    before = image(entry("p/x"), entry("f", "old"), packages=[package("p", "1.0", "p/x")])
    after = image(
        entry("p/x", "xyz"), entry(HOSTILE, "new"), *(entry(f"d/{number}") for number in range(2000)),
        entry("c.pyc"), name=HOSTILE, settings={"Env": ["HF_TOKEN=abc", f"A={HOSTILE}"]},
        packages=[package("p", "2.0", "p/x"), package(HOSTILE, HOSTILE)],
    )  # fmt: skip
    page = render_diff(compare_images(before, after))
    parsed = ParsedPage(page)
    assert parsed.open == []
    assert "img" not in {tag for tag, _ in parsed.elements}
    text = "".join(parsed.text)
    for words in ("Layers", "Packages", "Files without a package", "Bytecode", "Settings", "Env.HF_TOKEN", "2.0",
                  "2000 added", "and 1500 more", HOSTILE):  # fmt: skip
        assert words in text, words
    assert "abc" not in text


def test_the_page_of_equal_images_says_so() -> None:
    page = render_diff(compare_images(image(entry("a")), image(entry("a"))))
    assert "do not differ" in page
    assert "<table" not in page
