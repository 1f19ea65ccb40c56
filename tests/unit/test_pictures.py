"""The documents' pictures: the terminal's has what stays there, and each is light and loads nothing."""

import re
import struct
from xml.etree import ElementTree

import pytest

from tests.pictures import COMMANDS, FOLDER, IMAGES
from tests.pictures.terminal import COLUMNS, drawn, staying
from torchbake import cli
from torchbake.core.paths import TOOLKIT
from torchbake.matrix.project import Project
from torchbake.matrix.select import select

SHOWN = {
    path.rpartition("/")[2]: text
    for page in (TOOLKIT / "README.md", *(TOOLKIT / "docs").rglob("*.md"))
    for text, path in re.findall(r"!\[([^\]]*)\]\(([^)]*pictures/[^)]+)\)", page.read_text(encoding="utf-8"))
}
ANEW = "make them anew: nox -s pictures"


def words_of(svg: str) -> list[str]:
    """The lines of a drawn terminal."""
    lines: dict[float, str] = {}
    for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if "clip-path" in text.attrib:  # not the title
            y = float(text.attrib["y"])
            lines[y] = lines.get(y, "") + (text.text or "")
    return [line.replace("\xa0", " ").rstrip() for _, line in sorted(lines.items())]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\r\nb\r\n", ["a", "b", ""]),
        ("10 %\r50 %\rdone\r\n", ["done", ""]),
        ("10 %\r\x1b[2K\x1b[32m✓\x1b[0m done\n", ["\x1b[32m✓\x1b[0m done", ""]),
        ("one\ntwo\r\x1b[2K\x1b[1A\x1b[2Kall", ["all", ""]),
        ("\x1b[?25lrow\r\n\r\x1b[2K\x1b[?25h", ["row", ""]),
        ("kept\r\n", ["kept", ""]),
    ],
)
def test_what_was_written_over_is_gone(text: str, lines: list[str]) -> None:
    assert staying(text) == lines


def test_a_drawn_terminal_has_words_and_colors_and_no_requests() -> None:
    svg = drawn(["$ nox", "\x1b[32m✓\x1b[0m <done> & gone"], title="torchbake")
    assert words_of(svg) == ["$ nox", "✓ <done> & gone", ""]
    assert "fill: #83c9a0" in svg
    assert re.findall(r"https?://[^\"\s]+", svg) == ["http://www.w3.org/2000/svg"]
    assert drawn(["a"], title="b") == drawn(["a"], title="b")


def test_the_terminals_picture_shows_whole_commands() -> None:
    svg = (FOLDER / "terminal.svg").read_text(encoding="utf-8")
    lines = words_of(svg)
    queries = [line.removeprefix("$ nox ") for line in lines if line.startswith("$ ")]
    assert [line.replace("'", "") for line in queries] == [" ".join(words) for words in COMMANDS], ANEW
    assert max(map(len, lines)) <= COLUMNS
    assert 15 <= len(lines) <= 40
    assert re.findall(r"https?://[^\"\s]+", svg) == ["http://www.w3.org/2000/svg"]
    assert len(svg) < 50_000


def test_the_reports_picture_is_light_and_as_wide_as_it_is_made() -> None:
    png = (FOLDER / "report.png").read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert width == 1200, ANEW
    assert height > width / 2
    assert len(png) <= 250_000


def test_a_page_shows_each_picture_with_a_description() -> None:
    assert set(SHOWN) == {path.name for path in FOLDER.iterdir()}
    assert all(len(text) > 40 for text in SHOWN.values())


def test_what_the_pictures_are_made_of_is_there(project: Project) -> None:
    for flag, command, dashes, *words in COMMANDS:
        assert (flag, dashes) == ("-s", "--")
        assert select(project.expansion.specs, cli.make_parser(command).parse_args(words).selectors).specs
    assert len(select(project.expansion.specs, IMAGES).specs) == 4
