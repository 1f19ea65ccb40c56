"""Deliberately broken images, one for each image check: what is wrong with it, and how it is made.

Each is built on an image that passes everything, and must fail exactly the check that it is named after. Those that do
not get in each other's way can be one image, which must fail exactly its checks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Broken:
    """``base`` is what kind of image it is built on: cpu, devel, cuda or init.

    ``settings`` are instructions that make no layer. ``copies`` are files by their paths in the image. ``commands`` of
    the shell and then a ``script`` of Python run after that, as root. ``entrypoint`` are lines of shell after what the
    true one does; ``end`` is its last. ``dockerfile`` are any other instructions, and ``files`` their build context.
    ``sabotage`` is a function of tests/e2e/sabotage, which breaks one thing of torch as it is imported.
    ``program`` replaces texts in the init image's source, which is compiled into the context as `volume-permissions`.
    ``tag`` is an additional tag. ``only`` are the checks that judge it; empty: all but the smoke tests, which take
    longer. ``row`` is YAML, what a matrix of its own adds to the image, and ``beside`` are the files beside it.
    """

    what: str
    base: str = "cpu"
    only: str = ""
    settings: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    script: str = ""
    entrypoint: tuple[str, ...] = ()
    end: str = 'exec "$@"'
    dockerfile: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    sabotage: str = ""
    program: Mapping[str, str] = field(default_factory=dict)
    tag: str = ""
    row: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)


# What the true entrypoint does, without which half of the checks on users fail at once.
_HOME = ". /opt/torchbake/profile"
SITE = "/opt/venv/lib/python3.11/site-packages"


def dockerfile_of(ones: Sequence[Broken]) -> str:
    """What follows `FROM`; the image's user stays its own, unless a setting says another."""
    return "\n".join([*_steps(ones), *(line for one in ones for line in one.settings), ""])


def context_of(ones: Sequence[Broken]) -> dict[str, str]:
    """The build context: files by their names."""
    files = {name: text for one in ones for name, text in one.files.items()}
    files |= {f"copies{path}": text for one in ones for path, text in one.copies.items()}
    files |= {f"script{number}.py": one.script for number, one in enumerate(ones) if one.script}
    lines = [line for one in ones for line in one.entrypoint]
    if lines:
        (end,) = {one.end for one in ones}
        files["entrypoint"] = "\n".join(["#!/bin/sh", _HOME, *lines, end, ""])
    return files


def _steps(ones: Sequence[Broken]) -> Iterator[str]:
    yield from dict.fromkeys(one.dockerfile for one in ones)  # one program may have several mistakes
    yield from (f"COPY --chmod=0644 copies{path} {path}" for one in ones for path in one.copies)
    if any(one.entrypoint for one in ones):
        yield "COPY --chmod=0755 entrypoint /opt/torchbake/entrypoint"
    if sabotages := ",".join(one.sabotage for one in ones if one.sabotage):
        # A .pth file imports it: Debian's own sitecustomize comes before one in a virtual environment.
        yield f"COPY --chmod=0644 sabotage.py sabotage.pth {SITE}/"
        yield f"ENV SABOTAGE={sabotages}"
    commands = [command for one in ones for command in one.commands]
    commands += [f"python3 /run/broken/script{number}.py" for number, one in enumerate(ones) if one.script]
    if commands:
        yield "USER 0\nRUN --mount=target=/run/broken " + " \\\n && ".join(commands) + "\nUSER 1001"
