"""The registry of a command: by the option, else by the environment, else by the matrix."""

import importlib
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from torchbake import REGISTRY_VARIABLE, cli
from torchbake.commands import COMMANDS
from torchbake.commands._options import arguments_of
from torchbake.commands._registry_choice import OPTION, RegistrySource, choose, with_registry
from torchbake.commands.prove import _options_of
from torchbake.core.paths import TOOLKIT
from torchbake.errors import UsageError
from torchbake.matrix.project import load_project

Streams = pytest.CaptureFixture[str]
# The words of each command with which it uses a registry, and those with which it uses none.
USES = {
    "publish": (("cpu",), None),
    "promote": (("cpu",), None),
    "rollback": (("cpu",), None),
    "chart": (("push", "cpu"), None),
    "report": ((), ("--registry", "")),
    "list": (("all", "--due"), ("all",)),
    "tags": (("all", "--diff"), ("all",)),
    "prove": ((), ("--check",)),
    "validate": (("cpu",), ("pytorch/pytorch:latest",)),
    "benchmark": (("compare", "cpu"), ("compare", "cpu", "cuda12")),
    "job": (("show", "kubernetes", "job.yaml"), ("run", "job.yaml")),
}


def matrix_of(folder: Path, **keys: object) -> str:
    """Write this toolkit's matrix with other values of top-level keys, as text or as a list."""
    lines = (TOOLKIT / "matrix.yaml").read_text().splitlines()
    lines = [line for line in lines if line.partition(":")[0] not in keys]
    path = folder / "matrix.yaml"
    path.write_text("\n".join([*(f"{key}: {value}" for key, value in keys.items()), *lines]) + "\n")
    return str(path)


def option(*registries: str) -> RegistrySource:
    return RegistrySource(origin=OPTION, registries=registries)


def registries_of(command: str, *words: str) -> list[str]:
    """Return the registries of a command, each with its namespace."""
    value = parsed_arguments(command, *words).registry
    return [value] if isinstance(value, str) else [each.registry for each in value or ()]


def parsed_arguments(command: str, *words: str) -> Any:
    parsed = cli._parse(command, list(words))
    return with_registry(arguments_of(importlib.import_module(f"torchbake.commands.{command}").Arguments, parsed))


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REGISTRY_VARIABLE, raising=False)


def test_no_command_needs_a_registry_of_the_matrix_again(tmp_path: Path) -> None:
    matrix = matrix_of(tmp_path, registry="ghcr.io/acme")
    for command, (words, others) in USES.items():
        assert registries_of(command, *words, "--matrix", matrix) == ["ghcr.io/acme"], command
        if others is not None:
            assert not parsed_arguments(command, *others, "--matrix", matrix).registry, command


def test_every_command_with_a_registry_takes_the_configured_one() -> None:
    own = {"init"}  # writes the matrix
    for command in set(COMMANDS) - own:
        kind = importlib.import_module(f"torchbake.commands.{command}").Arguments
        of_registry = [each for each in fields(kind) if each.name == "registry"]
        assert of_registry or command not in USES, command
        assert all("registry_use" in each.metadata for each in of_registry), command


def test_the_option_wins_over_variable_and_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    words = ("cpu", "--matrix", matrix_of(tmp_path, registry="one.example/torchbake"))
    cases = []
    for variable, typed in ((None, ()), ("two.example/torchbake", ()), ("two.example/torchbake", ("--registry", "x"))):
        if variable:
            monkeypatch.setenv(REGISTRY_VARIABLE, variable)
        cases.append((registries_of("publish", *words, *typed)[0], capsys.readouterr().err))
    assert [registry for registry, _ in cases] == ["one.example/torchbake", "two.example/torchbake", "x/torchbake"]
    for (registry, message), origin in zip(
        cases, ("`registry` of matrix.yaml", REGISTRY_VARIABLE, OPTION), strict=True
    ):
        assert message.count("registry: ") == 1
        assert registry in message
        assert f"by {origin}" in message


def test_a_command_without_any_registry_says_the_three_ways(tmp_path: Path, capsys: Streams) -> None:
    assert cli.main(["publish", "cpu", "--matrix", matrix_of(tmp_path)]) == UsageError.exit_code
    output = capsys.readouterr().err
    assert all(word in output for word in ("--registry", "`registry: ", REGISTRY_VARIABLE))


def test_an_empty_option_is_no_registry(tmp_path: Path, capsys: Streams) -> None:
    """A pipeline whose variable is not set must not write into the registry of the matrix."""
    words = ("cpu", "--matrix", matrix_of(tmp_path, registry="ghcr.io/acme"), "--registry", "")
    for command in ("publish", "promote", "rollback"):
        assert cli.main([command, *words]) == UsageError.exit_code, command
        assert "--registry is empty" in capsys.readouterr().err, command
    assert registries_of("validate", *words) == []


def test_a_repository_means_the_same_with_and_without_a_host(tmp_path: Path) -> None:
    """Each pair of keys releases to ghcr.io/acme/pytorch."""
    for keys in (
        {"repository": "ghcr.io/acme/pytorch"},
        {"repository": "ghcr.io/acme/pytorch", "registry": "ghcr.io/acme"},
        {"repository": "acme/pytorch", "registry": "ghcr.io"},
        {"repository": "acme/pytorch", "registry": "ghcr.io/acme"},
        {"repository": "pytorch", "registry": "ghcr.io/acme"},
    ):
        matrix = matrix_of(tmp_path, **keys)
        load_project(Path(matrix))
        assert registries_of("publish", "cpu", "--matrix", matrix) == ["ghcr.io/acme"], keys
    for typed in ("127.0.0.1:5000", "127.0.0.1:5000/acme"):
        for repository in ("acme/pytorch", "ghcr.io/acme/pytorch", "127.0.0.1:5000/acme/pytorch"):
            assert choose([option(typed)], [repository]).registry == "127.0.0.1:5000/acme"


def test_a_namespace_is_kept_or_named() -> None:
    for typed, repository, dropped in (
        ("ghcr.io", "acme/pytorch", ""),
        ("ghcr.io/acme", "acme/pytorch", ""),
        ("pkg.dev/project/acme", "acme/pytorch", ""),
        ("ghcr.io/team", "pytorch", ""),
        ("ghcr.io/team", "acme/pytorch", "acme"),
        ("ghcr.io/team", "quay.io/acme/pytorch", "acme"),
        ("ghcr.io/acme-two", "acme/pytorch", "acme"),
    ):
        message = choose([option(typed)], [repository]).message
        assert (f"without the namespace {dropped} " in message) if dropped else not dropped, (typed, repository)
        assert ("without" in message) == bool(dropped), (typed, repository)


def test_a_matrix_names_one_registry(tmp_path: Path, capsys: Streams) -> None:
    matrix = matrix_of(tmp_path, repository="quay.io/acme/pytorch", registry="ghcr.io/acme")
    assert cli.main(["list", "all", "--matrix", matrix]) != 0
    assert "quay.io" in capsys.readouterr().err
    assert cli.main(["list", "all", "--matrix", matrix_of(tmp_path, registry="https://ghcr.io")]) != 0
    assert "without https://" in capsys.readouterr().err


def test_init_writes_the_registry_that_later_commands_use(tmp_path: Path, capsys: Streams) -> None:
    for words, registry in (
        ("--registry ghcr.io/acme", "ghcr.io/acme"),
        ("--registry 127.0.0.1:5000 --repository acme/pytorch", "127.0.0.1:5000/acme"),
        ("--repository ghcr.io/acme/pytorch", "ghcr.io/acme"),
    ):
        folder = tmp_path / words.replace("/", "_")
        assert cli.main(["init", str(folder), *shlex.split(words)]) == 0
        matrix = folder / "matrix.yaml"
        load_project(matrix)
        capsys.readouterr()
        choice = registries_of("publish", "cpu", "--matrix", str(matrix))
        assert "without the namespace" not in capsys.readouterr().err, words
        assert choice == [registry], words


def destinations_of(*words: str) -> list[str]:
    """Return the repositories of PyTorch images that `publish` writes to."""
    return [f"{each.registry}/{each.name}" for each in parsed_arguments("publish", "cpu", *words).registry]


def test_several_registries_and_names_are_all_destinations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    both = ["ghcr.io/acme/pytorch", "127.0.0.1:5000/team/pytorch"]
    for keys, repositories in (
        ({"registry": ["ghcr.io/acme", "127.0.0.1:5000/team"], "repository": "pytorch"}, both),
        ({"repository": both}, both),
        ({"repository": ["ghcr.io/team/pytorch", "base/torch"]}, ["ghcr.io/team/pytorch", "ghcr.io/base/torch"]),
        (
            {"registry": "ghcr.io", "repository": ["team/pytorch", "base/torch"]},
            ["ghcr.io/team/pytorch", "ghcr.io/base/torch"],
        ),
        (
            {"registry": ["ghcr.io", "quay.io/acme"], "repository": ["pytorch", "torch"]},
            ["ghcr.io/pytorch", "ghcr.io/torch", "quay.io/acme/pytorch", "quay.io/acme/torch"],
        ),
    ):
        matrix = matrix_of(tmp_path, **keys)
        load_project(Path(matrix))
        assert destinations_of("--matrix", matrix) == repositories, keys
    matrix = matrix_of(tmp_path, repository="pytorch")
    for words in (("--registry", "ghcr.io/acme", "--registry", "127.0.0.1:5000/team"),
                  ("--registry", "ghcr.io/acme, 127.0.0.1:5000/team")):  # fmt: skip
        assert destinations_of(*words, "--matrix", matrix) == both, words
    monkeypatch.setenv(REGISTRY_VARIABLE, "ghcr.io/acme,127.0.0.1:5000/team")
    assert destinations_of("--matrix", matrix) == both


def test_no_namespace_of_several_is_dropped_silently(tmp_path: Path, capsys: Streams) -> None:
    matrix = matrix_of(tmp_path, repository=["team/pytorch", "base/torch"])
    assert destinations_of("--registry", "ghcr.io/team", "--matrix", matrix) == [
        "ghcr.io/team/pytorch", "ghcr.io/team/torch",
    ]  # fmt: skip
    text = capsys.readouterr().err
    assert "without the namespace base of base/torch" in text
    assert "of team/pytorch" not in text


def test_a_command_for_one_registry_takes_the_first_and_says_so(tmp_path: Path, capsys: Streams) -> None:
    matrix = matrix_of(tmp_path, registry=["ghcr.io/acme", "quay.io/acme"], repository="pytorch")
    assert registries_of("report", "--matrix", matrix) == ["ghcr.io/acme"]
    assert "the first, ghcr.io/acme" in capsys.readouterr().err
    assert registries_of("validate", "cpu", "--matrix", matrix) == ["ghcr.io/acme", "quay.io/acme"]
    assert "the first" not in capsys.readouterr().err


def test_a_record_of_all_images_passes_on_what_was_typed(tmp_path: Path) -> None:
    matrix = matrix_of(tmp_path, repository=["team/pytorch", "base/torch"])
    words = ("--registry", "ghcr.io", "--registry", "quay.io/acme", "--matrix", matrix)
    assert _options_of(parsed_arguments("prove", *words).registry) == ["--registry=ghcr.io", "--registry=quay.io/acme"]
    matrix = matrix_of(tmp_path, registry="ghcr.io/acme")
    assert _options_of(parsed_arguments("prove", "--matrix", matrix).registry) == []
