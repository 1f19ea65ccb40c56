"""The command line: finds the verb, parses its options, runs it, and turns an error into an exit code."""

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from torchbake import console
from torchbake.errors import INTERRUPTED, StorageError, TorchbakeError, UsageError

# In the order of the flow; `nox -l` and `--help` show them so.
VERBS = (
    "setup", "teardown", "list", "tags", "schema", "lock", "base", "render", "build", "reproduce", "test", "smoke",
    "sbom", "publish", "promote", "rollback", "validate", "report",
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of ending the process."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(message, hint=f"See: {self.prog} --help")


def load_verb(name: str) -> ModuleType:
    """The module behind a verb: SUMMARY, EXAMPLES, add_arguments(parser) and run(args) -> exit code."""
    gc.disable()  # while modules load there is nothing to collect, and looking takes a tenth of the time
    try:
        return importlib.import_module(f"torchbake.verbs.{name}")
    finally:
        gc.freeze()  # modules stay for good: no later collection need walk them
        gc.enable()


def make_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one verb, its help ending in examples."""
    verb = load_verb(name)
    parser = _Parser(
        prog=f"nox -s {name} --",
        description=verb.SUMMARY,
        epilog="examples:\n" + "\n".join(f"  {line}" for line in verb.EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.add_arguments(parser)
    parser.add_argument(
        "--matrix",
        type=Path,
        default=Path("matrix.yaml"),
        metavar="FILE",
        help="the list of versions (default: matrix.yaml)",
    )
    return parser


def _overview() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {name:<{width}}  {load_verb(name).SUMMARY}" for name in VERBS]
    return "\n".join(["usage: python -m torchbake VERB [OPTIONS]", "", *lines, "", "Each verb has --help."])


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_overview())
        return 0 if argv else UsageError.exit_code
    name, *rest = argv
    if name not in VERBS:
        near = console.nearest(name, VERBS)
        raise UsageError(f"There is no verb {name!r}.", hint=f"Did you mean {near[0]!r}?" if near else None)
    args = _parse(name, rest)
    code: int = load_verb(name).run(args)
    return code


def _parse(name: str, words: list[str]) -> argparse.Namespace:
    """The options of a verb. `nox -s setup build -- cpu` hands `cpu` to both; setup leaves it to the other."""
    parser = make_parser(name)
    if not getattr(load_verb(name), "SHARES_COMMAND_LINE", False):
        return parser.parse_args(words)
    # Only with a selector among them can the words be meant for another verb; `--yes` alone is a mistake.
    args, others = parser.parse_known_args(words)
    if not any(word for word in others if not word.startswith("-")):
        return parser.parse_args(words)
    console.say(f"left to the next session: {' '.join(others)}", style="dim")
    return args


def main(argv: Sequence[str]) -> int:
    """Run one verb and return its exit code; never raises for what a user can cause."""
    try:
        return _run(argv)
    except TorchbakeError as error:
        console.show_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        console.say("interrupted; what was finished is kept", style="yellow")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone: nothing more to say, and nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        storage = StorageError(
            f"{error.strerror or error}{where}",
            hint="Free some space, or make the folder writable, then run again.",
        )
        console.show_error(storage)
        return storage.exit_code
    except SystemExit as end:  # argparse ends `--help` this way
        return int(end.code or 0)
