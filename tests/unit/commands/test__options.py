"""Options: each is a field of a frozen dataclass, so that mypy finds a misspelled option."""

import ast
import shlex
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import get_type_hints

import pytest
from pydantic import TypeAdapter

from tests.unit.test_cli import MATRIX
from torchbake import REGISTRY_VARIABLE, cli
from torchbake.commands import COMMANDS
from torchbake.commands._options import arguments_of
from torchbake.commands._registry_choice import with_registry
from torchbake.core.paths import TOOLKIT

# The functions that take options without types: they parse, make the dataclass, or complete a line.
UNTYPED = {"_parse", "arguments_of", "_selectors"}


def needs_of(name: str) -> list[str]:
    """Return the options and words that a command requires."""
    required = [action for action in cli.make_parser(name)._actions if action.required]
    return [word for action in required for word in (*action.option_strings[:1], "127.0.0.1:5000/team")]


def test_a_parser_gives_exactly_its_commands_fields() -> None:
    for name in COMMANDS:
        arguments = vars(cli.make_parser(name).parse_args(needs_of(name)))
        assert set(arguments) == {field.name for field in fields(cli.load_command(name).Arguments)}, name


def lines(name: str) -> list[list[str]]:
    """Return command lines of a command: the shortest one, and its examples."""
    plain = (line.partition(" |")[0].partition(" >")[0] for line in cli.load_command(name).EXAMPLES)
    return [needs_of(name), *(shlex.split(line, comments=True) for line in plain if line)]


def test_a_parser_gives_values_of_the_fields_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """mypy trusts the annotations, so a test compares them with the values that a command gets."""
    monkeypatch.setenv(REGISTRY_VARIABLE, "127.0.0.1:5000/team")
    for name in COMMANDS:
        kind = cli.load_command(name).Arguments
        adapters = {field: TypeAdapter(type_) for field, type_ in get_type_hints(kind).items()}
        for line in lines(name):
            item = with_registry(arguments_of(kind, cli.make_parser(name).parse_args(line)))
            for field, adapter in adapters.items():
                value = getattr(item, field)
                assert adapter.validate_python(value, strict=True) == value, name
        with pytest.raises(FrozenInstanceError):
            item.matrix = Path(MATRIX)


def test_options_without_types_go_nowhere_else() -> None:
    takers = {
        node.name
        for path in (TOOLKIT / "torchbake").rglob("*.py")
        if "Namespace" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and "Namespace" in ast.unparse(ast.Module(body=[node.args, *filter(None, [node.returns])], type_ignores=[]))  # type: ignore[list-item]
    }
    assert takers == UNTYPED
