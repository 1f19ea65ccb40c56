"""What a Dockerfile takes of the folder it is built in: files of the user's own beside the toolkit's. Pure."""

import json
import posixpath
import re
import shlex
from collections.abc import Collection, Iterator
from typing import NamedTuple, NoReturn

from torchbake.errors import RenderError
from torchbake.matrix.ignored import FOLDERS, DockerIgnore
from torchbake.render.instructions import Instruction, instructions, opens_document, triggered

# What our own templates take, by stage: locks, and the toolkit's files where no build context has them.
_OURS = re.compile(r"toolkit:(entrypoints|layers)|builder:images/builder\.lock|locks:images/[^/]+/requirements\.lock")
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|$)")
_OCTAL = re.compile(r"[0-7]{3,4}")
_NORMALIZED = re.compile(r"/run/own-\d+")  # mounts of what `files` and `certificates` name
_NO_GLOB = re.compile(r"\*\*|\[[!^]|\[[^\]]*$|\\")  # to Python another than to Docker, or none at all


class _Source(NamedTuple):
    path: str
    modes: bool


def own_sources(dockerfile: str) -> dict[str, bool]:
    """What is copied or mounted from the matrix's folder beside what our templates take: paths and globs.

    Each with whether the image may have the modes of its files; ``COPY --chmod=0644`` and the keys of the matrix set
    them. Raises RenderError where nobody could say which files those are.
    """
    found: dict[str, bool] = {}
    for path, modes in sorted(_sources(dockerfile)):
        found[path] = found.get(path, False) or modes
    return found


def all_sources(dockerfile: str) -> set[str]:
    """List all that a Dockerfile copies or mounts from its build's folder: paths and globs. Raises RenderError."""
    return {source.path for each in instructions(dockerfile) for source in _taken(each)}


def ignore_file(sources: Collection[str], ignore: DockerIgnore) -> str:
    """The `.dockerignore` of an image that takes these files of one's own.

    Docker reads it in place of the project's, so that what this one leaves out is in it too.
    """
    kept = [f"!{source}" for source in (*FOLDERS, *sources)]
    again = [f"!{source}" for source in (*FOLDERS, *filter(ignore.leaves_out, sources))] if ignore.lines else []
    lines = ("*", *kept, *ignore.lines, *again, "**/__pycache__")
    head = "# What the Dockerfile beside it copies; rendered with it by torchbake."
    return "\n".join((head, *lines)) + "\n"


def _sources(dockerfile: str) -> Iterator[_Source]:
    stage, later = "", list[_Source]()
    for instruction in instructions(dockerfile):
        if instruction.word == "FROM":
            yield from later  # a stage that is built on one with ONBUILD does what that says
            named = re.search(r"(?i)\sAS\s+(\S+)$", instruction.text)
            stage, later = named[1].lower() if named else "", []
        elif instruction.word == "ONBUILD" and instruction.text:
            later += _taken(triggered(instruction))
        else:
            yield from (source for source in _taken(instruction) if not _OURS.fullmatch(f"{stage}:{source.path}"))


def _taken(instruction: Instruction) -> Iterator[_Source]:
    if instruction.word in ("COPY", "ADD"):
        flags, words = _flags(instruction)
        if not any(name == "from" for name, _ in flags):
            modes = not any(name == "chmod" and _OCTAL.fullmatch(value) for name, value in flags)
            yield from (_Source(_known(path, instruction), modes) for path in _copied(words, instruction))
    elif instruction.word == "RUN":
        for name, value in _flags(instruction)[0]:
            if name == "mount":
                yield from _mounted(value, instruction)


def _flags(instruction: Instruction) -> tuple[list[tuple[str, str]], str]:
    """The flags of an instruction, and what is behind them."""
    flags, rest = list[tuple[str, str]](), instruction.text
    while match := _FLAG.match(rest):
        if re.search(r"[\"'\\]", match[0]):
            _refuse(instruction, f"has the flag {match[0].strip()}, and torchbake reads no quotes there")
        flags.append((match[1], match[2] or ""))
        rest = rest[match.end() :]
    return flags, rest


def _mounted(value: str, instruction: Instruction) -> Iterator[_Source]:
    fields = {key.lower(): text for key, _, text in (pair.partition("=") for pair in value.split(","))}
    if fields.get("type", "bind").lower() == "bind" and "from" not in fields:
        source = fields.get("source") or fields.get("src") or "."
        yield _Source(_known(source, instruction), not _NORMALIZED.fullmatch(fields.get("target", "")))


def _copied(words: str, instruction: Instruction) -> Iterator[str]:
    """The paths of a COPY or an ADD but its target. What is no list in JSON is words, as to Docker."""
    try:
        paths = json.loads(words)
    except ValueError:
        paths = None
    if not (isinstance(paths, list) and all(isinstance(path, str) for path in paths)):
        paths = [word if opens_document(word) else _unquoted(word, instruction) for word in words.split()]
    yield from (path for path in paths[:-1] if not ("://" in path or path.startswith("git@") or opens_document(path)))


def _unquoted(word: str, instruction: Instruction) -> str:
    try:
        texts = [] if "\\" in word else shlex.split(word)
    except ValueError:
        texts = []
    if len(texts) != 1:
        _refuse(instruction, f"copies {word}, whose quotes or backslashes Docker reads in another way than a shell")
    return texts[0]


def _known(source: str, instruction: Instruction) -> str:
    path = posixpath.normpath(source.strip("/") or ".")
    if "$" in source:
        _refuse(instruction, f"copies {source}, and nobody can say which file that is")
    if path in (".", "*") or ".." in source.split("/"):
        raise RenderError(
            f"Line {instruction.line} of the Dockerfile copies {source}, all of the matrix's folder or what is outside "
            "of it.",
            hint="Name what the image needs, such as COPY src /app/src: any change of it is another image.",
        )
    if _NO_GLOB.search(path):
        _refuse(instruction, f"copies {source}; in a glob there may be *, ? and [a-z], and no more")
    return path


def _refuse(instruction: Instruction, words: str) -> NoReturn:
    raise RenderError(
        f"Line {instruction.line} of the Dockerfile {words}.", hint="Correct it in templates/: write the path in full."
    )
