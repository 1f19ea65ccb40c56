"""Marks in a rendered Dockerfile that name the template and the line of each of its lines."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from jinja2 import nodes

# Control characters, which no Dockerfile has: a mark is BEGIN, file, BETWEEN, line, END.
_BEGIN, _BETWEEN, _END = "\x02", "\x1f", "\x03"
_MARK = re.compile(f"{_BEGIN}([^{_BETWEEN}]*){_BETWEEN}([0-9]+){_END}")


class TemplateLine(NamedTuple):
    """A line of a template."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def mark_lines(tree: nodes.Template, file: str) -> None:
    """Put a mark before the text of each line of a parsed template."""
    for data in tree.find_all(nodes.TemplateData):
        lines = data.data.split("\n")
        for number, line in enumerate(lines):
            text = line.lstrip(" \t")
            if text.strip():
                mark = f"{_BEGIN}{file}{_BETWEEN}{data.lineno + number}{_END}"
                lines[number] = line[: len(line) - len(text)] + mark + text
        data.data = "\n".join(lines)


def origins_of(text: str, marked: str) -> list[TemplateLine | None]:
    """Return the template's line for each line of a text, by the same text with marks.

    If the texts differ, all are None: a template that compares captured text compares the marks too.
    """
    if _MARK.sub("", marked).rstrip("\n") != text.rstrip("\n"):
        return [None] * len(text.split("\n"))
    return list(_read_marks(marked))


def _read_marks(text: str) -> Iterator[TemplateLine | None]:
    """Yield the template's line for each line of a marked text; for one without a mark, that of the line before."""
    last = None
    for line in text.split("\n"):
        marks = [TemplateLine(match[1], int(match[2])) for match in _MARK.finditer(line)]
        yield (last := marks[0] if marks else last)
        last = marks[-1] if marks else last
