"""Commands in messages, for a reader who typed `torchbake` and for one who typed `nox`."""

import sys
from pathlib import Path

import pytest

from torchbake.core.paths import PACKAGE
from torchbake.ui.command import Command

# Files that are committed or run by nox, and comments: they do not depend on the reader's door.
OF_NOX = {
    "commands/_cli_pages.py",
    "__main__.py", "benchmark/manual.py", "charts/manual.py", "cli.py", "commands/help.py", "commands/setup.py",
    "gate/manual.py", "jobs/manual.py", "lock/lockfile.py", "matrix/manual.py", "proof/record.py",
    "render/dockerfile.py", "ui/command.py",
}  # fmt: skip

EXAMPLES = [
    (Command("setup"), "torchbake setup", "nox -s setup"),
    (Command("setup", "--check"), "torchbake setup --check", "nox -s setup -- --check"),
    (Command("build test", "cpu"), "torchbake build cpu && torchbake test cpu", "nox -s build test -- cpu"),
]


@pytest.mark.parametrize(("command", "by_name", "by_nox"), EXAMPLES)
def test_a_command_is_written_for_its_door(
    command: Command, by_name: str, by_nox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "torchbake"
    clone.mkdir()
    monkeypatch.setattr(sys, "argv", ["/usr/bin/torchbake", "build"])
    assert str(command) == by_name
    for program in ("/x/torchbake/__main__.py", str(clone)):
        monkeypatch.setattr(sys, "argv", [program, "build"])
        assert f"Run: {command}" == f"Run: {by_nox}"


def test_no_other_text_names_nox() -> None:
    matches = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "nox -s" in path.read_text()}
    assert matches == OF_NOX
