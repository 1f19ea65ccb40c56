"""Find the files that a Dockerfile copies or mounts from its build context. Pure."""

import json
import posixpath
import re
import shlex
from collections.abc import Collection, Iterator
from typing import NamedTuple, NoReturn

from torchbake.errors import RenderError
from torchbake.matrix.dockerignore import FOLDERS, DockerIgnore
from torchbake.render.instructions import Instruction, instructions, opens_document, trigger

# Sources in the toolkit's templates, by stage: locks, and in a checkout the toolkit's files.
_OURS = re.compile(
    r"toolkit:(entrypoints|layers)|builder:images/builder\.lock|locks:images/[^/]+/requirements\.lock"
    r"|wheels:wheel\[s\]/\*\.whl"  # the lock has their hashes
)
_OUR_STAGES = ("toolkit", "builder", "locks", "wheels")
# The matrix's own wheels for a build by hand. A glob, because BuildKit refuses a missing folder only by its name.
OWN_WHEELS = "wheel[s]/*.whl"
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|$)")
_OCTAL = re.compile(r"[0-7]{3,4}")
_NORMALIZED = re.compile(r"/run/own-\d+")  # mounts for the keys `files` and `certificates`
_NO_GLOB = re.compile(r"\*\*|\[[!^]|\[[^\]]*$|\\")  # a glob that Python and Docker read in different ways, or an error


class _Source(NamedTuple):
    path: str
    modes: bool


def own_sources(dockerfile: str) -> dict[str, bool]:
    """Return the paths and globs that a Dockerfile copies or mounts from the matrix's folder, but not the toolkit's.

    The value is True if the image gets the modes of the files. ``COPY --chmod=0644`` and the matrix set other modes.
    Raises RenderError for a source that is not certain, such as a variable.
    """
    return dict(sorted(_sources(dockerfile)))  # of one path the last counts: True


def all_sources(dockerfile: str) -> set[str]:
    """Return all paths and globs that a Dockerfile copies or mounts from its build context. Raises RenderError."""
    return {source.path for each in instructions(dockerfile) for source in _sources_of(each)}


def sources_of(instruction: Instruction) -> list[str]:
    """Return the paths and globs that an instruction takes from the matrix's folder, whatever its stage is called.

    The files that the toolkit's templates take are left out. Raises RenderError.
    """
    paths = [source.path for source in _sources_of(instruction)]
    return [path for path in paths if not any(_OURS.fullmatch(f"{stage}:{path}") for stage in _OUR_STAGES)]


def ignore_file(sources: Collection[str], ignore: DockerIgnore) -> str:
    """Write the `.dockerignore` of an image that takes these files of the matrix's folder.

    Docker reads it in place of the project's `.dockerignore`, so it includes the lines of that file.
    """
    allowed = [f"!{source}" for source in (*FOLDERS, *sources)]
    again = [f"!{source}" for source in (*FOLDERS, *filter(ignore.leaves_out, sources))] if ignore.lines else []
    head = "# The files that this folder's Dockerfile copies; rendered with it by torchbake."
    return "\n".join((head, "*", *allowed, *ignore.lines, *again, "**/__pycache__")) + "\n"


def _sources(dockerfile: str) -> Iterator[_Source]:
    stage, later = "", list[_Source]()
    for instruction in instructions(dockerfile):
        if instruction.word == "FROM":
            yield from later  # a next stage that is based on this stage runs its ONBUILD
            match = re.search(r"(?i)\sAS\s+(\S+)$", instruction.text)
            stage, later = match[1].lower() if match else "", []
        elif instruction.word == "ONBUILD" and instruction.text:
            later += _sources_of(trigger(instruction))
        else:
            yield from (source for source in _sources_of(instruction) if not _OURS.fullmatch(f"{stage}:{source.path}"))


def _sources_of(instruction: Instruction) -> Iterator[_Source]:
    if instruction.word in ("COPY", "ADD"):
        flags, words = _flags(instruction)
        if not any(name == "from" for name, _ in flags):
            modes = not any(name == "chmod" and _OCTAL.fullmatch(value) for name, value in flags)
            yield from (_Source(_check_source(path, instruction), modes) for path in _copy(words, instruction))
    elif instruction.word == "RUN":
        for name, value in _flags(instruction)[0]:
            if name == "mount":
                yield from _mount(value, instruction)


def _flags(instruction: Instruction) -> tuple[list[tuple[str, str]], str]:
    """Split an instruction into its flags and the rest."""
    flags, rest = list[tuple[str, str]](), instruction.text
    while match := _FLAG.match(rest):
        if re.search(r"[\"'\\]", match[0]):
            _refuse(instruction, f"has quotes or a backslash in the flag {match[0].strip()}")
        flags.append((match[1], match[2] or ""))
        rest = rest[match.end() :]
    return flags, rest


def _mount(value: str, instruction: Instruction) -> Iterator[_Source]:
    fields = {key.lower(): text for key, _, text in (pair.partition("=") for pair in value.split(","))}
    if fields.get("type", "bind").lower() == "bind" and "from" not in fields:
        source = fields.get("source") or fields.get("src") or "."
        yield _Source(_check_source(source, instruction), not _NORMALIZED.fullmatch(fields.get("target", "")))


def _copy(words: str, instruction: Instruction) -> Iterator[str]:
    """Yield the sources of a COPY or an ADD in the build context: words, or a list in JSON."""
    try:
        paths = json.loads(words)
    except ValueError:
        paths = None
    if not (isinstance(paths, list) and all(isinstance(path, str) for path in paths)):
        paths = [word if opens_document(word) else _unquote(word, instruction) for word in words.split()]
    yield from (path for path in paths[:-1] if not ("://" in path or path.startswith("git@") or opens_document(path)))


def _unquote(word: str, instruction: Instruction) -> str:
    try:
        texts = [] if "\\" in word else shlex.split(word)
    except ValueError:
        texts = []
    if len(texts) != 1:
        _refuse(instruction, f"copies {word}, whose quotes or backslashes Docker reads in another way than a shell")
    return texts[0]


def _check_source(source: str, instruction: Instruction) -> str:
    path = posixpath.normpath(source.strip("/") or ".")
    if "$" in source:
        _refuse(instruction, f"copies {source}, whose value is not known before the build")
    if path in (".", "*") or ".." in source.split("/"):
        _refuse(
            instruction,
            f"copies {source}: the whole of the matrix's folder, or a path outside of it",
            hint="Name the files that the image needs, such as COPY src /app/src: each change of them is a new image.",
        )
    if _NO_GLOB.search(path):
        _refuse(instruction, f"copies {source}; a glob may contain only *, ? and [a-z]")
    return path


def _refuse(
    instruction: Instruction, problem: str, *, hint: str = "Correct it in templates/: write the path in full."
) -> NoReturn:
    raise RenderError(f"Line {instruction.line} of the Dockerfile {problem}.", hint=hint)
