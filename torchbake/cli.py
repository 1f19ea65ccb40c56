"""The command line: finds the command, parses its options, runs it, and turns an error into an exit code."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from types import ModuleType

from torchbake.commands import COMMANDS, FORMER_COMMANDS
from torchbake.commands._options import arguments_of
from torchbake.commands._parsers import load_command, make_parser, show_version
from torchbake.commands._subcommands import named_in, subcommands_of
from torchbake.errors import INTERRUPTED, TorchbakeError, UsageError, of_os_error
from torchbake.ui.command import by_its_name
from torchbake.ui.output_mode import OutputMode, set_mode

__all__ = ["load_command", "main", "make_parser"]


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
        show_version()
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
