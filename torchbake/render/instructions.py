"""A Dockerfile read again as BuildKit reads it: its instructions, without the lines of here-documents. Pure."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from torchbake.errors import RenderError

# Rules as in BuildKit's frontend/dockerfile/parser: what continues a line, which words open here-documents.
_ESCAPE = re.compile(r"(?i)(?:[ \t]*#[ \t]*[a-z]\w*[ \t]*=.*\n)*[ \t]*#[ \t]*escape[ \t]*=[ \t]*[^\\\s]")
_CONTINUED = re.compile(r"(?:^|(?<=[^\\]))\\[ \t]*$")
_COMMENT = re.compile(r"\s*#")
_WORD = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+""")
_DOCUMENT = re.compile(r"\d*<<(?P<dash>-?)(?P<end>[^<]+)")


class Instruction(NamedTuple):
    """Its word in capitals, all that follows with continued lines as one, and the number of its first line."""

    word: str
    text: str
    line: int


def instructions(dockerfile: str) -> Iterator[Instruction]:
    """Each instruction. Raises RenderError for what BuildKit refuses, or would read by other rules."""
    if _ESCAPE.match(dockerfile):
        raise RenderError("The Dockerfile escapes by another character.", hint="Leave out its `# escape=`.")
    lines = enumerate((line.rstrip("\r") for line in dockerfile.split("\n")), 1)
    for number, line in lines:
        if line.strip() and not _COMMENT.match(line):
            instruction = _instruction(_joined(line, lines), number)
            for end in _documents(instruction):
                _pass_over(end, lines, number)
            yield instruction


def triggered(instruction: Instruction) -> Instruction:
    """The instruction that an ONBUILD holds."""
    return _instruction(instruction.text, instruction.line)


def opens_document(word: str) -> bool:
    """Whether a word of RUN, COPY or ADD opens a here-document: ``<<END``, in quotes or not, and nothing before it."""
    match = _DOCUMENT.fullmatch(word)
    return bool(match and len(shlex.split(match["end"])) == 1)


def _instruction(text: str, line: int) -> Instruction:
    word, *rest = text.split(maxsplit=1)
    return Instruction(word.upper(), rest[0].rstrip() if rest else "", line)


def _joined(line: str, lines: Iterator[tuple[int, str]]) -> str:
    """A line with those that continue it, but comments and empty ones between them."""
    text = ""
    while end := _CONTINUED.search(line):
        text += line[: end.start()]
        line = next((more for _, more in lines if more.strip() and not _COMMENT.match(more)), "")
    return text + line


def _documents(instruction: Instruction) -> list[str]:
    """The words that open here-documents."""
    if instruction.word == "ONBUILD" and instruction.text:
        return _documents(triggered(instruction))
    if instruction.word not in ("RUN", "COPY", "ADD") or "<<" not in instruction.text:
        return []
    if _WORD.sub("", instruction.text).strip():
        raise RenderError(
            f"Line {instruction.line} of the Dockerfile has a quote without its end, and nobody can say whether `<<` "
            "is in it.",
            hint="Close it, or write another one.",
        )
    return [word for word in _WORD.findall(instruction.text) if opens_document(word)]


def _pass_over(word: str, lines: Iterator[tuple[int, str]], number: int) -> None:
    match = _DOCUMENT.fullmatch(word)
    assert match
    (end,) = shlex.split(match["end"])
    if not any((line.lstrip("\t") if match["dash"] else line) == end for _, line in lines):
        raise RenderError(
            f"Line {number} of the Dockerfile opens a here-document by {word}, and no line is its end.",
            hint=f"Add the line: {end}",
        )
