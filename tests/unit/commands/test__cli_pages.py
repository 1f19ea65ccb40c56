"""docs/reference/cli*.md: generated from the parsers, with every command, subcommand and option, in short pages."""

import re

import pytest

from torchbake import cli
from torchbake.commands import COMMANDS
from torchbake.commands._cli_pages import GROUPS, page_of, with_overview
from torchbake.commands._subcommands import subcommands_of
from torchbake.commands.schema import CLI_PAGE

TEXTS = {name: CLI_PAGE.with_name(f"{name}.md").read_text(encoding="utf-8") for name in ("cli", *GROUPS)}


def section_of(command: str, subcommand: str) -> str:
    """Return the text below the heading of a command or a subcommand."""
    heading = f"\n### {command} {subcommand}\n" if subcommand else f"\n## {command}\n"
    (text,) = (text for text in TEXTS.values() if heading in text)
    return re.split(r"\n##+ ", text.partition(heading)[2])[0]


def test_the_pages_are_generated_from_the_parsers() -> None:
    assert with_overview(TEXTS["cli"]) == TEXTS["cli"], "run: nox -s schema"
    assert {name: page_of(group) for name, group in GROUPS.items()} == {
        name: text for name, text in TEXTS.items() if name != "cli"
    }, "run: nox -s schema"


def test_each_command_is_on_one_page() -> None:
    assert sorted(command for group in GROUPS.values() for command in group.commands) == sorted(COMMANDS)


def test_no_page_has_more_than_400_lines() -> None:
    assert {name: len(text.splitlines()) for name, text in TEXTS.items() if len(text.splitlines()) > 400} == {}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_each_of_its_options_and_examples(command: str) -> None:
    everywhere = TEXTS["cli"]
    for subcommand in subcommands_of(cli.load_command(command)) or ("",):
        text = section_of(command, subcommand)
        for action in cli.make_parser(command, subcommand or None)._actions:
            flag = action.option_strings[-1:] or [""]
            assert re.search(rf"(?m)^\| `[^`]*{re.escape(flag[0])}[ `,]", text + everywhere), (command, flag)
    whole = "\n".join(TEXTS.values())
    for example in cli.load_command(command).EXAMPLES:
        assert f"    torchbake {command} {example}".rstrip() in whole


def test_the_environment_does_not_change_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TORCHBAKE_MATRIX", "/x.yaml"), ("TORCHBAKE_REGISTRY", "x.example"), ("COLUMNS", "50")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["/usr/bin/torchbake"])
    assert with_overview(TEXTS["cli"]) == TEXTS["cli"]
    assert page_of(GROUPS["cli-checks"]) == TEXTS["cli-checks"]
