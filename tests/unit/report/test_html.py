"""The page: all in one file, for every reader, and whatever somebody writes is text."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from tests.unit.conftest import check_golden
from tests.unit.report.test_catalogue import CPU, CUDA, HOSTILE, PRESENT, catalogue, check, layer, present, verdict
from torchbake.checks.verdict import Outcome
from torchbake.core.paths import TOOLKIT
from torchbake.report.catalogue import KnownImages, make_catalogue
from torchbake.report.html import anchor, render_page


class ParsedPage(HTMLParser):
    """Every element with its attributes, and all text."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_is_what_it_was() -> None:
    check_golden(TOOLKIT / "tests/unit/golden/report.html", render_page(catalogue()))


def test_the_page_tells_who_signed_a_release() -> None:
    assert "Signed by cosign, with a key." in render_page(catalogue())
    one = PRESENT.released[CUDA.id]
    assert one.record
    unsigned = one.record.model_copy(update={"signature": "not-run: no key was given", "attached": {}})
    page = render_page(catalogue(replace(PRESENT, released={CUDA.id: replace(one, record=unsigned)})))
    assert '<span class="not-run">Not signed</span>: no key was given.' in page
    assert "<h5>Attached</h5>" not in page


def test_releases_are_counted_where_a_registry_was_asked() -> None:
    assert "<dt>Released</dt>" in render_page(catalogue())
    assert "<dt>Released</dt>" not in render_page(catalogue(replace(PRESENT, registry="", released={})))


@pytest.mark.parametrize(
    "known_images", [PRESENT, KnownImages(engine="No container engine answers.")], ids=["all", "nothing"]
)
def test_the_page_needs_nothing_else(known_images: KnownImages) -> None:
    page = render_page(catalogue(known_images))
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)
    parsed = ParsedPage(page)
    assert parsed.open == []
    loads = [
        value
        for _, arguments in parsed.elements
        for name, value in arguments.items()
        if name in ("src", "href", "data")
    ]
    assert all(value and value.startswith(("#", "data:,")) for value in loads)


def test_the_page_is_one_that_a_screen_reader_can_walk() -> None:
    parsed = ParsedPage(render_page(catalogue()))
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [arguments["id"] for _, arguments in parsed.elements if "id" in arguments]
    assert len(ids) == len(set(ids))
    links = {value for tag, arguments in parsed.elements if tag == "a" and (value := arguments.get("href"))}
    assert {link.removeprefix("#") for link in links} <= set(ids)
    names = {arguments["aria-labelledby"] for _, arguments in parsed.elements if "aria-labelledby" in arguments}
    assert names <= set(ids)
    assert all("scope" in arguments for tag, arguments in parsed.elements if tag == "th")
    assert all(arguments.get("aria-label") for tag, arguments in parsed.elements if tag == "svg")
    assert {"header", "main", "footer"} <= {tag for tag, _ in parsed.elements}


def test_whatever_somebody_writes_is_text() -> None:
    spec = replace(CUDA, repository=HOSTILE, flavor=HOSTILE)
    there = replace(PRESENT.released[CUDA.id], repository=HOSTILE, tag=HOSTILE, problem=HOSTILE)
    known_images = replace(
        PRESENT, engine=HOSTILE, registry=HOSTILE, released={spec.id: there},
        present={spec.id: present("b", layer(HOSTILE, 5), stale=HOSTILE)},
        verdicts={spec.id: verdict("b", check(HOSTILE, Outcome.FAILED, HOSTILE), check("x", Outcome.NOT_RUN, HOSTILE))},
    )  # fmt: skip
    page = render_page(
        make_catalogue((spec,), {spec.id: (HOSTILE,)}, known_images, date=HOSTILE, matrix=HOSTILE, selection=HOSTILE)
    )
    plain = render_page(catalogue())
    assert page.count("<script") == plain.count("<script") == 1
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "49" not in "".join(ParsedPage(page).text)
    assert not any(name.startswith("on") for _, arguments in ParsedPage(page).elements for name in arguments)


def test_control_characters_and_colours_do_not_reach_the_page() -> None:
    failed = check("x", Outcome.FAILED, "\x1b[31mred\x1b[0m \x00\x07\u202edne \ud800")
    page = render_page(catalogue(replace(PRESENT, verdicts={CPU.id: verdict("a", failed)})))
    assert "<li>red dne  <span" in page
    page.encode()


def test_the_policy_names_the_page_s_own_style_and_script() -> None:
    page = render_page(catalogue())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;")
    assert "unsafe" not in policy[1]
    assert " style=" not in page


def test_an_anchor_is_one_word() -> None:
    assert anchor("2.10.0-cuda12.8") == "image-2.10.0-cuda12.8"
    assert re.fullmatch(r"[\w.-]+", anchor(HOSTILE))
