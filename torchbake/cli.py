"""The command line: finds the command, parses its options, runs it, and turns an error into an exit code."""

import argparse
import gc
import importlib
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from torchbake import MATRIX_VARIABLE
from torchbake.commands import COMMANDS, FORMER_COMMANDS, FORMER_OPTIONS
from torchbake.commands._options import add_options, arguments_of
from torchbake.commands._subcommands import examples_of, named_in, overview, subcommands_of
from torchbake.errors import INTERRUPTED, TorchbakeError, UsageError, of_os_error
from torchbake.ui.command import Command, by_its_name
from torchbake.ui.output_mode import OutputMode, set_mode


class _ShowVersion(argparse.Action):
    """Show the version, which git is asked for only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        _show_version()
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of ending the process."""

    def error(self, message: str) -> None:  # type: ignore[override]
        near = _near_option(message, self._option_string_actions)
        question = f"Did you mean {near!r}? " if near else ""
        raise UsageError(message, hint=f"{question}See: {self.prog} --help")


def _near_option(message: str, options: Iterable[str]) -> str:
    """Return the option that is nearest to an unknown option in a message of argparse; empty if there is none."""
    words = message.removeprefix("unrecognized arguments: ").split() if message.startswith("unrecognized") else []
    for word in (word.partition("=")[0] for word in words if word.startswith("--")):
        from torchbake.core.suggest import nearest  # noqa: PLC0415 - only for a mistake

        former = FORMER_OPTIONS.get(word)
        return former if former and former in options else next(iter(nearest(word, options)), "")
    return ""


def _show_version() -> None:
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


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {'torchbake' if by_its_name() else 'python -m torchbake'} COMMAND [OPTIONS]",
            "",
            *lines,
            "",
            "Each command has --help; --version shows the version; `help` shows the documentation.",
        ]
    )


def _run(argv: Sequence[str]) -> int:
    if argv and argv[0] in ("-V", "--version"):
        _show_version()
        return 0
    if not argv or argv[0] in ("-h", "--help"):
        print(_overview())
        return 0 if argv else UsageError.exit_code
    name, *rest = argv
    if name not in COMMANDS:
        from torchbake.core.suggest import nearest  # noqa: PLC0415 - only for a mistake

        near = [FORMER_COMMANDS[name]] if name in FORMER_COMMANDS else nearest(name, COMMANDS)
        raise UsageError(f"There is no command {name!r}.", hint=f"Did you mean {near[0]!r}?" if near else None)
    command = load_command(name)
    args = arguments_of(command.Arguments, _parse(name, rest))
    set_mode(OutputMode(quiet=args.quiet, verbose=args.verbose, progress=args.progress))
    if args.progress == "rich":
        _console().force_terminal()
    if any("registry_use" in each.metadata for each in fields(command.Arguments)):
        from torchbake.commands._registry_choice import with_registry  # noqa: PLC0415 - the others need no matrix

        args = with_registry(args)
    code: int = command.run(args)
    return code


def _parse(name: str, words: list[str]) -> argparse.Namespace:
    """Parse the options of a command. With `nox -s setup build -- cpu`, setup gets `cpu` too, and ignores it."""
    parser = make_parser(name)
    if subcommands := subcommands_of(load_command(name)):
        own = make_parser(name, named_in(words, subcommands))
        if {"-h", "--help"} & {*(words[: words.index("--")] if "--" in words else words)}:
            own.parse_args(["--help"])
        parser.prog = own.prog  # errors name the help of the subcommand
    if not getattr(load_command(name), "SHARES_COMMAND_LINE", False):
        return parser.parse_intermixed_args(words)  # positional arguments before, between and after options
    # Unknown words are meant for another command only if there is a selector; `--yes` alone is a mistake.
    args, others = parser.parse_known_args(words)
    if not any(word for word in others if not word.startswith("-")):
        return parser.parse_args(words)
    _console().say(f"left to the next session: {' '.join(others)}", style="dim")
    return args


def _console() -> ModuleType:
    """Import the console when there is a message: rich takes half of the time in which a command starts."""
    from torchbake.ui import console  # noqa: PLC0415

    return console


def main(argv: Sequence[str]) -> int:
    """Run a command and return its exit code. An error that a user can cause is shown, never raised."""
    # nox shows debug messages of libraries; one for each request would hide ours.
    for library in ("docker", "urllib3"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        code = _run(argv)
        sys.stdout.flush()  # here, where a closed pipe or a full disk is still reported as such
        return code
    except TorchbakeError as error:
        _console().show_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        _console().say("interrupted; finished work is kept", style="yellow")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) has ended, which is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        failure = of_os_error(error)
        _console().show_error(failure)
        return failure.exit_code
    except SystemExit as end:  # argparse ends `--help` this way
        return int(end.code or 0)
