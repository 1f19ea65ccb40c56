"""``docs/reference/cli*.md``: every command with its options and examples, generated from the parsers. Pure."""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchbake.commands import COMMANDS
from torchbake.commands._parsers import load_command, make_parser
from torchbake.commands._subcommands import Subcommand, examples_of, subcommands_of
from torchbake.matrix.manual import page_with

MARK = "<!-- from the parsers in torchbake/commands/; `nox -s schema` writes it -->\n"
_COMMON = ("quiet", "verbose", "progress", "help", "version", "matrix")  # options of every command
_SELECTORS = ("selectors", "SELECTOR")
_SELECTOR_TEXT = "[which images](cli.md#select-images)"


@dataclass(frozen=True, kw_only=True)
class CommandGroup:
    """The commands of one page."""

    title: str
    summary: str
    commands: tuple[str, ...]


GROUPS = {
    "cli-repository": CommandGroup(
        title="Commands for a repository and a machine", summary="Start a repository, and make a machine ready.",
        commands=("init", "setup", "teardown", "clean", "store", "schema", "help"),
    ),
    "cli-images": CommandGroup(
        title="Commands that make images", summary="From the matrix to images in the engine.",
        commands=("list", "tags", "lock", "propose", "update", "base", "render", "build", "reproduce"),
    ),
    "cli-checks": CommandGroup(
        title="Commands that check and measure images", summary="Check, measure and compare images.",
        commands=("test", "smoke", "benchmark", "sbom", "advisories", "waste", "diff", "report"),
    ),
    "cli-releases": CommandGroup(
        title="Commands for releases", summary="From tested images to tags in a registry.",
        commands=("publish", "promote", "rollback", "validate", "prove"),
    ),
    "cli-jobs": CommandGroup(
        title="Commands for jobs and hosts", summary="Training in released images, and on hosts without containers.",
        commands=("job", "code", "chart", "host"),
    ),
}  # fmt: skip


def with_overview(page: str) -> str:
    """Replace the generated part of ``cli.md``: the options of every command, and the list of commands."""
    common = [action for action in make_parser("help")._actions if action.dest in _COMMON]
    common.sort(key=lambda action: _COMMON.index(action.dest))
    parts = ["\n".join(["## Options of every command", "", *_table(map(_row, common)), ""])]
    for name, group in GROUPS.items():
        rows = ((f"[`{command}`]({name}.md#{command})", _text(COMMANDS[command])) for command in group.commands)
        parts.append("\n".join([f"## {group.title}", "", *_table(rows, head="command"), ""]))
    return page_with(page, MARK, parts)


def page_of(group: CommandGroup) -> str:
    """Return the page of a group."""
    others = "Words that select images, and options of every command, are in [the command line](cli.md)."
    intro = f"# {group.title}\n\n{group.summary}\n{others}\n\n"
    return page_with(intro, MARK, [part for name in group.commands for part in _command(name)])


def _command(name: str) -> Iterator[str]:
    """Yield the sections of a command: one, or one more for each subcommand."""
    module = load_command(name)
    subcommands: Mapping[str, Subcommand] = subcommands_of(module)
    yield f"## {name}\n\n{_sentence(COMMANDS[name])}\n"
    if not subcommands:
        yield _section(name, make_parser(name), _lines(name, module.EXAMPLES))
    for word, subcommand in subcommands.items():
        line = name if word.isupper() else f"{name} {word}"
        yield f"### {name} {word}\n\n{_sentence(subcommand.summary)}\n"
        examples = _lines(name, examples_of(word, subcommands, module.EXAMPLES))
        yield _section(line, make_parser(name, word), examples)


def _lines(name: str, examples: Iterable[str]) -> list[str]:
    return [f"    torchbake {name} {example}".rstrip() for example in examples]


def _section(line: str, parser: argparse.ArgumentParser, examples: Sequence[str]) -> str:
    """Return the usage, the options and the examples of a command or a subcommand."""
    words = [_usage(action) for action in parser._actions if not action.option_strings]
    rows = [*_rows(parser)]
    parts = [[f"    {' '.join(['torchbake', line, *words, '[OPTIONS]'])}"], _table(rows) if rows else [], examples]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield a row for each word and option, and one for the title of each group of options."""
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.dest not in _COMMON]
        if actions and group.title not in ("positional arguments", "options", "optional arguments"):
            yield f"**{_text(group.title or '')}**", ""
        yield from map(_row, actions)


def _row(action: argparse.Action) -> tuple[str, str]:
    if action.dest in _SELECTORS:
        return "`SELECTOR`", _SELECTOR_TEXT
    text = (action.help or "").replace("%%", "%")
    if isinstance(action.default, int | str) and action.default and not isinstance(action.default, bool):
        hidden = action.default == argparse.SUPPRESS or "default" in text
        text += "" if hidden else f" (default: {action.default})"
    return f"`{_code(_names(action))}`", _text(text)


def _names(action: argparse.Action) -> str:
    value = _value(action)
    names = ", ".join(action.option_strings) or value
    return f"{names} {value}" if value and action.option_strings and action.nargs != 0 else names


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.replace("-", "_").upper()


def _usage(action: argparse.Action) -> str:
    value = _value(action)
    forms = {"*": f"[{value} ...]", "?": f"[{value}]", "+": f"{value} ..."}
    return forms.get(str(action.nargs), value)


def _table(rows: Iterable[tuple[str, str]], head: str = "option") -> list[str]:
    lines = (f"| {name} | {text} |" for name, text in rows)
    return [f"| {head} | meaning |", "| --- | --- |", *lines]


def _sentence(text: str) -> str:
    text = _text(text)
    return f"{text[:1].upper()}{text[1:]}."


def _text(text: str) -> str:
    """Return a text as Markdown for a cell of a table, with commands as users of the package type them."""
    text = re.sub(r"nox -s ([a-z]+)(?: --(?= ))?", r"torchbake \1", " ".join(text.split()))
    return "".join(_code(part) if part.startswith("`") else _plain(part) for part in re.split(r"(`[^`]*`)", text))


def _plain(text: str) -> str:
    """Escape the characters of a text that Markdown reads, and mark the options in it as code."""
    return re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", re.sub(r"([|<*])", r"\\\1", text))


def _code(text: str) -> str:
    return text.replace("|", r"\|")
