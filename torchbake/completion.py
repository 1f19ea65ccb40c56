"""Completion by TAB of commands, their options, and the words that select images. See docs/how-to/completion.md."""

import argparse
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import argcomplete
from argcomplete.completers import FilesCompleter
from argcomplete.lexers import split_line

from torchbake.cli import load_command, make_parser
from torchbake.commands._subcommands import Subcommand, named_in, subcommands_of
from torchbake.errors import TorchbakeError
from torchbake.matrix.project import load_project
from torchbake.matrix.select import ALL, FACETS
from torchbake.matrix.spec import pytorch_of

_START = "_ARGCOMPLETE"  # the number of the program's word in the line, from 1: the protocol of argcomplete


def answer(commands: Sequence[str]) -> None:
    """Answer a shell, which passes the line in variables, and end the process."""
    line, start = os.environ["COMP_LINE"], int(os.environ[_START])
    words = split_line(line, int(os.environ["COMP_POINT"]))[3]  # the words before the cursor's
    if len(words) > start and words[start] in commands:
        parser = _parser_of(words[start], words[start + 1 :], start)
    else:
        parser = argparse.ArgumentParser()
        parser.add_argument("command", choices=commands)
    argcomplete.autocomplete(parser)


def _parser_of(command: str, following: Sequence[str], start: int) -> argparse.ArgumentParser:
    """Return the parser of a command, or of the subcommand that follows it, as argcomplete's program."""
    subcommands = subcommands_of(load_command(command))
    own = named_in(following[:1], subcommands)
    os.environ[_START] = str(start + (2 if own else 1))
    parser = make_parser(command, own if subcommands else None)
    actions: list[Any] = parser._actions  # argcomplete reads an attribute that argparse does not declare
    for action in actions:
        if action.dest == "subcommand":
            action.completer = partial(_firsts, subcommands)
        elif action.dest in ("selectors", "words", "SELECTOR"):
            action.completer = _selectors
        elif action.dest == "topic":
            action.completer = _topics
    return parser


def _firsts(subcommands: Mapping[str, Subcommand], prefix: str, **_: Any) -> list[str]:
    """List the names of subcommands, and the files if one of them begins with a file."""
    names = [name for name in subcommands if not name.isupper()]
    return names + (FilesCompleter()(prefix) if len(names) < len(subcommands) else [])


def _topics(**_: Any) -> list[str]:
    """List the pages that `help` shows."""
    return [page.stem for page in load_command("help").pages()]


def _selectors(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """List the words that select images, or that exclude images if ``prefix`` begins with `!`."""
    try:
        specs = load_project(parsed_args.matrix).expansion.specs
    except TorchbakeError:
        return []
    words = {word for spec in pytorch_of(specs) for facet in FACETS for word in facet.words(spec)}
    words |= {ALL, *(spec.id for spec in specs)}
    return sorted(f"!{word}" if prefix.startswith("!") else word for word in words)
