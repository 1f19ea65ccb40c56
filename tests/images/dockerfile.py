"""The image settings in a rendered Dockerfile: those of its last stage, and the settings that it inherits."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from torchbake.render.instructions import instructions


@dataclass(kw_only=True)
class Promise:
    """An image's settings. A label whose value is ``${…}`` is filled in by the build."""

    user: str = ""
    workdir: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    ports: set[str] = field(default_factory=set)
    volumes: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)  # HEALTHCHECK, ONBUILD, SHELL, STOPSIGNAL


def promise_of(dockerfile: str) -> Promise:
    """Read the last stage of a Dockerfile that torchbake rendered, with the additions of the user's template."""
    promise, stages = Promise(), dict[str, Promise]()
    for word, rest, _ in instructions(dockerfile):
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            promise = stages[name.strip()] = copy.deepcopy(stages.get(image.strip(), Promise()))
        elif word in ("ENV", "LABEL"):
            pairs = promise.environment if word == "ENV" else promise.labels
            pairs.update(_pairs(rest, promise.environment))
        elif word in ("ENTRYPOINT", "CMD"):
            setattr(promise, word.lower(), json.loads(rest) if rest.startswith("[") else ["/bin/sh", "-c", rest])
        elif word in ("USER", "WORKDIR"):
            setattr(promise, word.lower(), rest)
        elif word == "EXPOSE":
            promise.ports |= {port if "/" in port else f"{port}/tcp" for port in rest.split()}
        elif word == "VOLUME":
            promise.volumes |= set(json.loads(rest) if rest.startswith("[") else rest.split())
        elif word in ("HEALTHCHECK", "ONBUILD", "SHELL", "STOPSIGNAL"):
            promise.others.add(word)
    return promise


def _pairs(text: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    key, equals, _ = text.partition("=")
    if not equals or re.search(r"\s", key):  # the older form: one name, and the rest of the line
        key, _, rest = text.partition(" ")
        yield key, _filled(rest.strip(), variables)
        return
    for word in re.findall(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+""", text):
        key, _, rest = word.partition("=")
        yield key, _filled(rest, variables)


_PIECES = re.compile(r"""'(?P<plain>[^']*)'|"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<open>(?:\\.|[^'"\\])+)""")
_MEANING = re.compile(r"\\(?P<any>.)|\$(?:\{(?P<braced>\w+)\}|(?P<bare>\w+))")


def _filled(word: str, variables: Mapping[str, str]) -> str:
    """A word as BuildKit reads it: https://docs.docker.com/reference/dockerfile/#environment-replacement"""

    def suggestion(match: re.Match[str], *, quoted: bool) -> str:
        if match["any"]:
            return match["any"] if not quoted or match["any"] in '"$\\' else match[0]
        return variables.get(match["braced"] or match["bare"], match[0])

    text = ""
    for piece in _PIECES.finditer(word):
        quoted = piece["quoted"] is not None
        inner = piece["quoted"] if quoted else piece["open"] or ""
        text += piece["plain"] or _MEANING.sub(partial(suggestion, quoted=quoted), inner)
    return text
