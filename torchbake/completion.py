"""Completion by TAB of commands, their options, and the words that select images. See docs/completion.md."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

import argcomplete
from argcomplete.lexers import split_line

from torchbake.errors import TorchbakeError
from torchbake.matrix.project import load_project
from torchbake.matrix.select import ALL, FACETS
from torchbake.matrix.spec import pytorch_of

_START = "_ARGCOMPLETE"  # the number of the program's word in the line, from 1: the protocol of argcomplete


def answer(commands: Sequence[str], make_parser: Any) -> None:
    """Answer a shell, which passes the line in variables, and end the process."""
    line, start = os.environ["COMP_LINE"], int(os.environ[_START])
    words = split_line(line, int(os.environ["COMP_POINT"]))[3]  # the words before the cursor's
    if len(words) > start and words[start] in commands:
        os.environ[_START] = str(start + 1)  # for argcomplete, the command is the program
        parser = make_parser(words[start])
    else:
        parser = argparse.ArgumentParser()
        parser.add_argument("command", choices=commands)
    for action in parser._actions:
        if action.dest in ("selectors", "words"):
            action.completer = _selectors
    argcomplete.autocomplete(parser)


def _selectors(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """List the words that select images, or that exclude images if ``prefix`` begins with `!`."""
    try:
        specs = load_project(parsed_args.matrix).expansion.specs
    except TorchbakeError:
        return []
    words = {word for spec in pytorch_of(specs) for facet in FACETS for word in facet.words(spec)}
    words |= {ALL, *(spec.id for spec in specs)}
    return sorted(f"!{word}" if prefix.startswith("!") else word for word in words)
