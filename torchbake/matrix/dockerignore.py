"""The project's `.dockerignore`, which keeps paths out of images, with the rules of Docker."""

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from torchbake.errors import MatrixError

FILE = ".dockerignore"
FOLDERS = ("entrypoints", "images", "layers")  # needed by builds, so that no pattern excludes them
_PIECES = re.compile(r"\*\*/?|\*|\?|\[[^\]]*\]|\\.|.", re.DOTALL)
_STEPS = 10**5  # the most steps of a regular expression, which tries each place of a path for each wildcard
_MEANING = {"*": "[^/]*", "?": "[^/]", "**": "(?:.*/)?", "**/": "(?:.*/)?"}


@dataclass(frozen=True, kw_only=True)
class DockerIgnore:
    """The patterns in order; a later one with ``!`` includes a path again. Pure."""

    lines: tuple[str, ...] = ()

    def leaves_out(self, path: str) -> bool:
        """Return True if the patterns exclude a path, or a folder above it. Raises MatrixError."""
        out = False
        for line in self.lines:
            if line.startswith("!") == out and _pattern(line.removeprefix("!")).matches(path):
                out = not out
        return out

    def takes(self, path: str, sources: Iterable[str]) -> bool:
        """Return True if an image with these sources gets a path below one of them.

        The content of an excluded source is taken all the same, since the matrix names the source.
        """
        names = [path, *map(str, PurePosixPath(path).parents)][:-1]
        if not self.lines or names[-1] in FOLDERS or not self.leaves_out(path):
            return True
        return any(self.leaves_out(source) for source in sources if source in names or any(m in source for m in "*?["))


def read_ignore(root: Path) -> DockerIgnore:
    try:
        text = (root / FILE).read_bytes().decode(errors="replace").removeprefix("\ufeff")
    except FileNotFoundError:
        return DockerIgnore()
    lines = (line.strip() for line in text.splitlines() if not line.startswith("#"))
    cleaned = []
    for line in (line for line in lines if line.strip("! ")):
        sign, path = ("!", line[1:].strip()) if line.startswith("!") else ("", line)
        cleaned.append(sign + (posixpath.normpath(path).lstrip("/") or "/"))
    return DockerIgnore(lines=tuple(cleaned))


@dataclass(frozen=True, kw_only=True)
class _Pattern:
    """A pattern as its pieces, and as a regular expression."""

    pieces: tuple[str, ...]
    expression: re.Pattern[str]

    def matches(self, path: str) -> bool:
        """Return True if the pattern matches a path, or a folder above it."""
        wildcards = sum(piece in _MEANING and piece != "?" for piece in self.pieces)
        if len(path) ** wildcards <= _STEPS:
            return self.expression.fullmatch(path) is not None
        return self._reaches_end(path)

    def _reaches_end(self, path: str) -> bool:
        """Match all pieces at once, in time that grows with the product of both lengths.

        A state is the index of the next piece, or ``~index`` within a ``**``.
        """
        states = {0}
        for character in f"{path}/":
            for index in range(len(self.pieces)):
                if index in states and self.pieces[index] in ("*", "**", "**/"):
                    states.add(index + 1)  # each of these also matches nothing
            if character == "/" and len(self.pieces) in states:
                return True
            states = {after for state in states for after in self._after(state, character)}
        return False

    def _after(self, state: int, character: str) -> Iterator[int]:
        index = state if state >= 0 else ~state
        if index == len(self.pieces):
            return
        piece = self.pieces[index]
        if piece in ("**", "**/"):
            if piece == "**" and index == len(self.pieces) - 1:
                yield index
                return
            yield ~index
            if character == "/":
                yield index + 1
        elif piece == "*":
            if character != "/":
                yield index
        elif re.fullmatch(_expression(piece), character, re.DOTALL):
            yield index + 1


@cache
def _pattern(text: str) -> _Pattern:
    pieces = _PIECES.findall(text)
    last = ".*" if pieces[-1] == "**" else _expression(pieces[-1])
    try:
        expression = re.compile("".join((*map(_expression, pieces[:-1]), last, "(?:/.*)?")), re.DOTALL)
    except re.error:
        raise MatrixError(f"{FILE}: {text!r} is not a pattern that Docker reads.", hint="Correct it.") from None
    return _Pattern(pieces=tuple(pieces), expression=expression)


def _expression(piece: str) -> str:
    if piece.startswith("[") and len(piece) > 1:
        return piece
    return _MEANING.get(piece) or re.escape(piece[-1])
