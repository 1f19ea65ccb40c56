"""The subcommands of a command, such as `job run`: each has its own help and completion.

A command declares them as SUBCOMMANDS, by name, and marks with ``of`` the options that only some of them have. A name
in capitals is a placeholder, such as PLAN: any first word is taken for it that is no name.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, kw_only=True)
class SubcommandWord:
    """A word after the name of a subcommand; with ``many``, any number of them."""

    name: str
    help: str
    many: bool = False
    choices: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"[{self.name} ...]" if self.many else self.name

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add the word to the parser of its subcommand."""
        text = f"{self.help}: {', '.join(self.choices)}" if self.choices else self.help
        parser.add_argument(
            self.name, help=text, choices=self.choices, metavar=self.name, nargs="*" if self.many else None
        )


@dataclass(frozen=True, kw_only=True)
class Subcommand:
    """The summary of a subcommand, and its words."""

    summary: str
    words: tuple[SubcommandWord, ...] = ()


def image_words(help_: str, *, many: bool = True) -> SubcommandWord:
    """Declare words that select images; completion knows them by their name."""
    return SubcommandWord(name="SELECTOR", help=help_, many=many)


def subcommands_of(module: ModuleType) -> Mapping[str, Subcommand]:
    """Return the subcommands of a command's module; empty if it has none."""
    subcommands: Mapping[str, Subcommand] = getattr(module, "SUBCOMMANDS", {})
    return subcommands


def named_in(words: Sequence[str], subcommands: Mapping[str, Subcommand]) -> str:
    """Return the subcommand that a command line names; "" if it names none.

    A placeholder is taken if there is another word, which may be the value of an option.
    """
    others = [name for name in subcommands if name.isupper() and any(not word.startswith("-") for word in words)]
    return next((word for word in words if word in subcommands), "".join(others))


def overview(subcommands: Mapping[str, Subcommand]) -> str:
    """Return the list of subcommands for the help of their command."""
    lines = {" ".join([*([] if name.isupper() else [name]), *map(str, each.words)]): each.summary
             for name, each in subcommands.items()}  # fmt: skip
    width = max(map(len, lines))
    return "\n".join(["subcommands:", *(f"  {line:<{width}}  {summary}" for line, summary in lines.items())])


def examples_of(name: str, subcommands: Mapping[str, Subcommand], examples: Sequence[str]) -> list[str]:
    """Return the examples of a subcommand; all of them for ""."""
    if not name:
        return list(examples)
    firsts = {example: example.partition(" ")[0] for example in examples}
    if name.isupper():
        return [example for example, first in firsts.items() if first not in subcommands]
    return [example for example, first in firsts.items() if first == name]
