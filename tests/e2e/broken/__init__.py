"""Deliberately broken images, one for each image check, with a description of the defect and the build steps.

Each is built on an image that passes all checks, and must fail exactly the check that it is named after. Independent
defects can share one image, which must fail exactly the checks of its defects.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A defect of an image.

    - ``base``: the kind of image to build on: cpu, devel, cuda or init
    - ``only``: the checks to run; empty: all except the slow smoke tests
    - ``settings``: instructions that make no layer
    - ``copies``: files by their paths in the image
    - ``commands``, ``script``: shell commands and then a Python script, which run after the copies, as root
    - ``entrypoint``, ``end``: shell lines after the setup of the real entrypoint, and the last line
    - ``dockerfile``, ``files``: any other instructions, and their build context
    - ``sabotage``: a function of tests/e2e/sabotage, which breaks one feature of torch when torch is imported
    - ``program``: texts to replace in the init image's source, which is compiled as `volume-permissions`
    - ``tag``: an additional tag
    - ``row``, ``beside``: YAML that a separate matrix adds to the image, and the files in that matrix's folder
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


# The real entrypoint sources the profile; without it, half of the checks on users fail at once.
_HOME = ". /opt/torchbake/profile"
SITE = "/opt/venv/lib/python3.11/site-packages"


def dockerfile_of(ones: Sequence[Broken]) -> str:
    """Return the instructions after `FROM`. They keep the image's user unless ``settings`` set another."""
    return "\n".join([*_steps(ones), *(line for one in ones for line in one.settings), ""])


def context_of(ones: Sequence[Broken]) -> dict[str, str]:
    """Return the files of the build context by name."""
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
