"""Subcommands: each has its own help, options, examples and completion."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from torchbake import cli
from torchbake.commands import COMMANDS
from torchbake.commands._subcommands import Subcommand, subcommands_of

Streams = pytest.CaptureFixture[str]


def commands() -> Iterator[tuple[str, Mapping[str, Subcommand]]]:
    for command in COMMANDS:
        if subcommands := subcommands_of(cli.load_command(command)):
            yield command, subcommands


def help_of(capsys: Streams, *words: str) -> str:
    assert cli.main([*words, "--help"]) == 0
    return capsys.readouterr().out


def flags(text: str) -> set[str]:
    """Return the options that a help describes."""
    return {flag for line in re.findall(r"(?m)^  (-.*?)(?:  .*)?$", text) for flag in re.findall(r"--[\w-]+", line)}


def test_the_commands_with_subcommands() -> None:
    assert {command for command, _ in commands()} >= {"benchmark", "chart", "host", "job", "store"}


def test_each_subcommand_shows_its_own_options_and_examples(capsys: Streams) -> None:
    for command, subcommands in commands():
        module = cli.load_command(command)
        for name, subcommand in subcommands.items():
            text = help_of(capsys, command, name)
            visible = flags(text)
            for each in fields(module.Arguments):
                for flag in each.metadata.get("flags") or (
                    [f"--{each.name.replace('_', '-')}"] if each.metadata else []
                ):
                    if each.metadata.get("of") and flag.startswith("--"):
                        assert (flag in visible) == (name in each.metadata["of"]), (command, name, flag)
            assert " ".join(subcommand.summary.split()) in " ".join(text.split()), (command, name)
            assert all(str(word.name) in text for word in subcommand.words), (command, name)
            examples = text.partition("examples:\n")[2].splitlines()
            assert examples, (command, name)
            assert name.isupper() or all(f" {name}" in line for line in examples), (command, name)


def test_the_help_of_a_command_lists_its_subcommands(capsys: Streams) -> None:
    for command, subcommands in commands():
        text = help_of(capsys, command)
        assert all(subcommand.summary in text for subcommand in subcommands.values()), command
        of_some = [each for each in fields(cli.load_command(command).Arguments) if each.metadata.get("of")]
        assert not {f"--{each.name.replace('_', '-')}" for each in of_some} & flags(text), command


def test_options_name_subcommands_that_exist() -> None:
    for command, subcommands in commands():
        marks = {name for each in fields(cli.load_command(command).Arguments) for name in each.metadata.get("of", ())}
        assert marks <= set(subcommands), command
        actions = getattr(cli.load_command(command), "_ACTIONS", None)
        assert actions is None or set(actions) == {name for name in subcommands if not name.isupper()}, command


def test_words_may_come_before_the_subcommands_help(capsys: Streams) -> None:
    assert "--kustomize" in help_of(capsys, "job", "--lenient", "show", "docker", "job.yaml")
    assert "--report" in help_of(capsys, "benchmark", "plan.yaml")
    assert cli.main(["job", "run", "job.yaml", "--unknown"]) == 2
    assert re.search(r"job.* run --help", capsys.readouterr().err)


# A line, the words that a shell offers there, and words that it does not offer.
TYPED: tuple[tuple[str, set[str], set[str]], ...] = (
    ("job ", {"run", "show", "targets"}, {"--kustomize"}),
    ("job run --", {"--target", "--dry-run"}, {"--kustomize", "--check"}),
    ("job show ", {"kubernetes", "slurm"}, {"run"}),
    ("job show docker --", {"--kustomize"}, {"--target"}),
    ("benchmark compare --", {"--threshold"}, {"--report", "--force"}),
    ("benchmark plan.yaml --", {"--report"}, {"--threshold"}),
    ("benchmark co", {"compare"}, set()),
    ("chart push --", {"--keyless"}, {"--output"}),
    ("chart push cp", {"cpu"}, set()),
    ("store verify --", {"--remove-damaged"}, set()),
    ("help ", {"tutorial", "cli-images", "tags"}, {"README", "architecture"}),
)


# To load the commands takes half a second, so the program for each line is forked from one process.
FORKING = """\
import os, pathlib, runpy, sys
from torchbake import cli, completion
folder, *lines = sys.argv[1:]
sys.argv = ["torchbake"]
for command in {line.split()[0] for line in lines}:
    cli.load_command(command)
for number, line in enumerate(lines):
    if not (child := os.fork()):
        line = f"torchbake {line}"
        os.environ |= {
            "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\\n", "COMP_LINE": line, "COMP_POINT": str(len(line)),
            "_ARGCOMPLETE_STDOUT_FILENAME": os.path.join(folder, str(number)),
        }
        runpy.run_module("torchbake", run_name="__main__", alter_sys=True)
    assert os.waitpid(child, 0)[1] == 0, line
"""


def test_a_shell_completes_the_subcommands_own_words(tmp_path: Path, pythons: Callable[..., list[str]]) -> None:
    pythons(["-c", FORKING, str(tmp_path), *(typed for typed, *_ in TYPED)], {})
    for number, (typed, there, absent) in enumerate(TYPED):
        words = {word.strip() for word in (tmp_path / str(number)).read_text().split("\n")}
        assert there <= words, typed
        assert not absent & words, typed
