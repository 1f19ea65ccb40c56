"""Parse the instructions of a Dockerfile as BuildKit does, without the lines of here-documents. Pure."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from torchbake.errors import RenderError

# Rules of BuildKit's frontend/dockerfile/parser for continued lines and here-documents.
_ESCAPE = re.compile(r"(?i)(?:[ \t]*#[ \t]*[a-z]\w*[ \t]*=.*\n)*[ \t]*#[ \t]*escape[ \t]*=[ \t]*[^\\\s]")
_CONTINUED = re.compile(r"(?:^|(?<=[^\\]))\\[ \t]*$")
_COMMENT = re.compile(r"\s*#")
_WORD = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+""")
_DOCUMENT = re.compile(r"\d*<<(?P<dash>-?)(?P<end>[^<]+)")


class Instruction(NamedTuple):
    """An instruction's word in capitals, the rest of it with continued lines joined, and the number of its line."""

    word: str
    text: str
    line: int


def instructions(dockerfile: str) -> Iterator[Instruction]:
    """Yield each instruction. Raises RenderError for syntax that BuildKit refuses or that this parser does not know."""
    if _ESCAPE.match(dockerfile):
        raise RenderError("The Dockerfile sets another escape character.", hint="Remove its `# escape=`.")
    lines = enumerate((line.rstrip("\r") for line in dockerfile.split("\n")), 1)
    for number, line in lines:
        if line.strip() and not _COMMENT.match(line):
            instruction = _instruction(_join(line, lines), number)
            for word in _documents(instruction):
                _skip_document(word, lines, number)
            yield instruction


def trigger(instruction: Instruction) -> Instruction:
    """Return the instruction after ONBUILD."""
    return _instruction(instruction.text, instruction.line)


def opens_document(word: str) -> bool:
    """Return whether a word of RUN, COPY or ADD begins a here-document: ``<<END``, with or without quotes."""
    match = _DOCUMENT.fullmatch(word)
    return bool(match and len(shlex.split(match["end"])) == 1)


def _instruction(text: str, line: int) -> Instruction:
    word, *rest = text.split(maxsplit=1)
    return Instruction(word.upper(), rest[0].rstrip() if rest else "", line)


def _join(line: str, lines: Iterator[tuple[int, str]]) -> str:
    """Join a line with its continuation lines, without the comments and empty lines between them."""
    text = ""
    while end := _CONTINUED.search(line):
        text += line[: end.start()]
        line = next((more for _, more in lines if more.strip() and not _COMMENT.match(more)), "")
    return text + line


def _documents(instruction: Instruction) -> list[str]:
    """Return the words of an instruction that begin here-documents."""
    if instruction.word == "ONBUILD" and instruction.text:
        return _documents(trigger(instruction))
    if instruction.word not in ("RUN", "COPY", "ADD") or "<<" not in instruction.text:
        return []
    if _WORD.sub("", instruction.text).strip():
        raise RenderError(
            f"Line {instruction.line} of the Dockerfile has a quote without its end, so `<<` may be in it.",
            hint="Close the quote.",
        )
    return [word for word in _WORD.findall(instruction.text) if opens_document(word)]


def _skip_document(word: str, lines: Iterator[tuple[int, str]], number: int) -> None:
    match = _DOCUMENT.fullmatch(word)
    assert match
    (end,) = shlex.split(match["end"])
    if not any((line.lstrip("\t") if match["dash"] else line) == end for _, line in lines):
        raise RenderError(
            f"Line {number} of the Dockerfile begins a here-document with {word}, which no line ends.",
            hint=f"Add the line: {end}",
        )
