"""A Dockerfile read again: its instructions, and what they take of the folder it is built in. Pure."""

import json
import re
import shlex
from collections.abc import Iterator

from torchbake.errors import RenderError

# What every Dockerfile of ours takes: locks, and the toolkit's own files where no build context has them.
_OURS = ("entrypoints", "images", "layers")
_CONTINUED = re.compile(r"\\[ \t]*\n(?:[ \t]*#.*\n)*[ \t]*")
_MOUNT = re.compile(r"^--mount=(\S+)")


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Each instruction with its words, continued lines as one; without the lines of here-documents."""
    lines = iter(_CONTINUED.sub(" ", dockerfile).splitlines())
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        ends = re.findall(r"<<-?[\"']?(\w+)", rest) if word.upper() in ("RUN", "COPY", "ADD") else []
        for end in ends:
            while next(lines, end).strip() != end:
                pass
        yield word.upper(), rest.strip()


def own_sources(dockerfile: str) -> tuple[str, ...]:
    """What is copied or mounted from the matrix's folder, beside locks and the toolkit's files: paths and globs.

    Raises RenderError where nobody could say which files those are.
    """
    found = {_known(source) for word, rest in instructions(dockerfile) for source in _sources(word, rest)}
    return tuple(sorted(source for source in found if source.partition("/")[0] not in _OURS))


def ignore_file(dockerfile: str) -> str:
    """What stands in the `.dockerignore` of an image that takes files of one's own; empty for others."""
    sources = own_sources(dockerfile)
    if not sources:
        return ""
    kept = "".join(f"!{source}\n" for source in (*_OURS, *sources))
    return f"# What the Dockerfile beside it copies; rendered with it by torchbake.\n*\n{kept}**/__pycache__\n"


def _sources(word: str, rest: str) -> Iterator[str]:
    if word in ("COPY", "ADD"):
        yield from _copied(rest)
    elif word == "RUN":
        while mount := _MOUNT.match(rest):
            fields = dict(pair.partition("=")[::2] for pair in mount[1].split(","))
            if fields.get("type", "bind") == "bind" and "from" not in fields:
                yield fields.get("source") or fields.get("src") or "."
            rest = rest[mount.end() :].lstrip()


def _copied(rest: str) -> Iterator[str]:
    flags = re.match(r"(?:--\S+\s+)*", rest)
    end = flags.end() if flags else 0
    if "--from=" in rest[:end]:
        return
    words = rest[end:]
    paths = json.loads(words) if words.startswith("[") else shlex.split(words)
    yield from (path for path in paths[:-1] if "://" not in path and not path.startswith(("<<", "git@")))


def _known(source: str) -> str:
    path = source.strip("/").removeprefix("./").rstrip("/")
    if "$" in source:
        raise RenderError(
            f"A Dockerfile copies {source}, and nobody can say which file that is.", hint="Write its path in full."
        )
    if path in ("", ".") or ".." in path.split("/"):
        raise RenderError(
            f"A Dockerfile copies {source}, all of the matrix's folder or what is outside of it.",
            hint="Name what the image needs, such as COPY src /app/src: any change of it is another image.",
        )
    return path
