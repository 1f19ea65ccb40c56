"""The parsers of the commands: their options, help and errors."""

import argparse
import gc
import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from torchbake import MATRIX_VARIABLE
from torchbake.commands import COMMANDS, FORMER_OPTIONS
from torchbake.commands._options import add_options
from torchbake.commands._subcommands import examples_of, overview, subcommands_of
from torchbake.errors import UsageError
from torchbake.ui.command import Command


class _ShowVersion(argparse.Action):
    """Show the version, which git is asked for only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        show_version()
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of ending the process."""

    def error(self, message: str) -> None:  # type: ignore[override]
        near = _near_option(message, self._option_string_actions)
        suggestion = f"Did you mean {near!r}? " if near else ""
        raise UsageError(message, hint=f"{suggestion}See: {self.prog} --help")


def _near_option(message: str, options: Iterable[str]) -> str:
    """Return the option that is nearest to an unknown option in a message of argparse; empty if there is none."""
    words = message.removeprefix("unrecognized arguments: ").split() if message.startswith("unrecognized") else []
    for word in (word.partition("=")[0] for word in words if word.startswith("--")):
        from torchbake.core.suggest import nearest  # noqa: PLC0415 - only for a mistake

        former = FORMER_OPTIONS.get(word, "")
        return former if former in options else next(iter(nearest(word, options)), "")
    return ""


def show_version() -> None:
    from torchbake.core.version import version  # noqa: PLC0415 - seldom needed

    print(f"torchbake {version()}")


def load_command(name: str) -> ModuleType:
    """Import the module of a command, which has EXAMPLES, Arguments and run(arguments) -> exit code."""
    gc.disable()  # imports make no garbage, and the collector would take a tenth of their time
    try:
        return importlib.import_module(f"torchbake.commands.{name}")
    finally:
        gc.freeze()  # no later collection walks the modules, which stay until the end
        gc.enable()


def make_parser(name: str, subcommand: str | None = None) -> argparse.ArgumentParser:
    """Make the parser of a command, whose help ends with examples.

    With a ``subcommand``, its help and options are those of the subcommand; with "", those of all subcommands.
    """
    module = load_command(name)
    subcommands, summary = subcommands_of(module), COMMANDS[name]
    own = subcommands[subcommand] if subcommand else None
    if own:
        summary = own.summary
    elif subcommand == "":
        summary = f"{summary}\n\n{overview(subcommands)}"
    program = str(Command(name, "--help")).removesuffix(" --help")
    examples = examples_of(subcommand or "", subcommands, module.EXAMPLES)
    parser = _Parser(
        prog=" ".join([program, *([subcommand] if subcommand and not subcommand.isupper() else [])]),
        description=summary,
        epilog="examples:\n" + "\n".join(f"  {Command(name, words)}" for words in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for word in own.words if own else ():
        word.add_to(parser)
    if subcommand == "":
        help_ = f"one of the above; each has its own options: {Command(name, f'{next(iter(subcommands))} --help')}"
        parser.add_argument("subcommand", help=help_, metavar="SUBCOMMAND ...")
    add_options(parser, module.Arguments, subcommand)
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, default=argparse.SUPPRESS, help="show the toolkit's version, and end"
    )
    parser.add_argument(
        "--matrix",
        type=Path,
        default=Path(os.environ.get(MATRIX_VARIABLE) or "matrix.yaml"),
        metavar="FILE",
        help=f"the list of versions (default: ${MATRIX_VARIABLE}, else matrix.yaml)",
    )
    return parser
