"""The project's own `.dockerignore`: what of its folders goes into no image. Read as Docker reads it."""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from torchbake.errors import MatrixError

FILE = ".dockerignore"
FOLDERS = ("entrypoints", "images", "layers")  # what builds take of these, no pattern leaves out
_PIECES = re.compile(r"\*\*/?|\*|\?|\[[^\]]*\]|\\.|.", re.DOTALL)
_MEANING = {"*": "[^/]*", "?": "[^/]", "**": "(?:.*/)?", "**/": "(?:.*/)?"}


@dataclass(frozen=True, kw_only=True)
class DockerIgnore:
    """Its patterns in order; what one leaves out, a later one with ``!`` takes back. Pure."""

    lines: tuple[str, ...] = ()

    def leaves_out(self, path: str) -> bool:
        """Whether the patterns leave out a path, or a folder above it. Raises MatrixError."""
        out, names = False, _from(path)
        for line in self.lines:
            if line.startswith("!") == out and any(map(_pattern(line.removeprefix("!")).fullmatch, names)):
                out = not out
        return out

    def takes(self, path: str, sources: Iterable[str]) -> bool:
        """Whether an image of these sources has a path below one of them.

        A source that is left out is taken with all that it holds, since somebody names it.
        """
        names = _from(path)
        if not self.lines or names[-1] in FOLDERS or not self.leaves_out(path):
            return True
        return any(self.leaves_out(source) for source in sources if source in names or any(m in source for m in "*?["))


def read_ignore(root: Path) -> DockerIgnore:
    try:
        text = (root / FILE).read_bytes().decode(errors="replace").removeprefix("\ufeff")
    except FileNotFoundError:
        return DockerIgnore()
    lines = (line.strip() for line in text.splitlines() if not line.startswith("#"))
    return DockerIgnore(lines=tuple(_cleaned(line) for line in lines if line.strip("! ")))


def _from(path: str) -> list[str]:
    """A path, and each folder above it."""
    return [path, *map(str, PurePosixPath(path).parents)][:-1]


def _cleaned(line: str) -> str:
    sign, path = ("!", line[1:].strip()) if line.startswith("!") else ("", line)
    return sign + (posixpath.normpath(path).lstrip("/") or "/")


@cache
def _pattern(text: str) -> re.Pattern[str]:
    pieces = _PIECES.findall(text)
    last = ".*" if pieces[-1] == "**" else _expression(pieces[-1])
    try:
        return re.compile("".join((*map(_expression, pieces[:-1]), last)), re.DOTALL)
    except re.error:
        raise MatrixError(f"{FILE}: {text!r} is not a pattern that Docker reads.", hint="Correct it.") from None


def _expression(piece: str) -> str:
    if piece.startswith("[") and len(piece) > 1:
        return piece
    return _MEANING.get(piece) or re.escape(piece[-1])
