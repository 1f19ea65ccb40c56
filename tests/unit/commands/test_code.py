"""The output and exit codes of `code`, with a registry in memory."""

import json
import os
from inspect import get_annotations
from pathlib import Path
from typing import Any

import pytest

from tests.unit.code.folders import image, stored, write
from tests.unit.conftest import SMALL
from tests.unit.registries import MemoryRegistry, MemorySigner, Store
from torchbake import REGISTRY_VARIABLE
from torchbake.cli import main
from torchbake.commands import code as command
from torchbake.commands._signing import PushSigning
from torchbake.commands.code import SUBCOMMANDS
from torchbake.errors import RegistryError, UsageError
from torchbake.oci.reference import Repository, parse_reference

IMAGE = "registry.example.com/acme/pytorch:cpu"
REPOSITORY = IMAGE.partition(":")[0]
Streams = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A repository with an image, a folder `src`, and a matrix."""
    store = Store()
    stored(store, *image())

    def registry_of(repository: Repository, *, plain_http: bool) -> MemoryRegistry:
        assert not plain_http
        registry = MemoryRegistry(store)
        registry.repository = repository
        return registry

    monkeypatch.setattr(command, "registry_of", registry_of)
    write(tmp_path / "src")
    (tmp_path / "matrix.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return store


def result(capsys: Streams, *words: str) -> Any:
    assert main(["code", *words, "--format", "json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_the_reference_alone_is_on_stdout(store: Store, capsys: Streams) -> None:
    assert main(["code", "push", IMAGE, "src"]) == 0
    output = capsys.readouterr()
    reference = parse_reference(output.out.strip())
    assert store.tags[reference.tag] == reference.digest
    assert "not signed" in output.err
    (listed,) = result(capsys, "ls", REPOSITORY)["images"]
    assert (listed["tag"], listed["digest"]) == (reference.tag, reference.digest)


def test_json_has_what_was_sent(store: Store, capsys: Streams) -> None:
    planned = result(capsys, "push", IMAGE, "src", "--dry-run")
    assert set(store.tags) == {"cpu"}
    pushed = result(capsys, "push", IMAGE, "src")
    same = pushed.keys() - {"seconds", "dry_run"}
    assert {key: pushed[key] for key in same} == {key: planned[key] for key in same}
    assert (pushed["files"], pushed["at"], pushed["signed"], planned["dry_run"]) == (3, "/job", False, True)
    assert pushed["sent_bytes"] > pushed["layer_bytes"]


@pytest.mark.parametrize("words", ["2.13.0-cpu-runtime-debian12", "cpu runtime"])
def test_an_image_of_the_matrix_is_named_by_words(store: Store, capsys: Streams, words: str) -> None:
    stored(store, *image(3), "2.13.0-cpu-runtime-debian12")
    pushed = result(capsys, "push", words, "src", "--registry", "registry.example.com/acme")
    assert pushed["base"].startswith(f"{REPOSITORY}:2.13.0-cpu-runtime-debian12@")


def test_a_whole_reference_needs_no_configured_registry(
    store: Store, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(store, *image(3), "2.13.0-cpu-runtime-debian12")
    for name, matrix in ((REGISTRY_VARIABLE, SMALL), ("", f"registry: registry.example.com/acme\n{SMALL}")):
        Path("matrix.yaml").write_text(matrix)
        if name:
            monkeypatch.setenv(name, "registry.example.com/acme")
        assert result(capsys, "push", IMAGE, "src")["base"].startswith(f"{IMAGE}@")
        assert result(capsys, "push", "cpu runtime", "src")["base"].startswith(f"{REPOSITORY}:2.13.0-cpu-")
        monkeypatch.delenv(REGISTRY_VARIABLE, raising=False)


def test_a_key_signs_the_new_image(store: Store, capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "signer_of", lambda args: MemorySigner(store=store, key=args.key))
    pushed = result(capsys, "push", IMAGE, "src", "--key", "ours")
    assert pushed["signed"]
    assert store.signed == {("ours", parse_reference(pushed["reference"]).digest)}


@pytest.mark.parametrize(
    "words",
    [
        (), ("write",), ("push", IMAGE), ("push", "cpu", "src"), ("ls",), ("ls", REPOSITORY, "--dry-run"),
        ("push", IMAGE, "src", "--registry", "a.example.com/b"), ("push", IMAGE, "nothing"),
        ("push", IMAGE, "src", "--at", "/etc"), ("prune", REPOSITORY, "--older-than", "1w"),
        ("prune", REPOSITORY, "--key", "k"), ("push", IMAGE, "src", "--older-than", "1d"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_changes_nothing(store: Store, capsys: Streams, words: tuple[str, ...]) -> None:
    assert main(["code", *words]) == UsageError.exit_code
    assert capsys.readouterr().err.count("\n  next: ") == 1
    assert set(store.tags) == {"cpu"}


def test_push_alone_has_the_options_of_signatures(store: Store, capsys: Streams) -> None:
    kinds = get_annotations(PushSigning)
    options = {name: f"--{name.replace('_', '-')}" for name in kinds}
    for words in (("ls", REPOSITORY), ("prune", REPOSITORY)):
        for name, option in options.items():
            value = ["x"] if kinds[name] is str else []
            assert main(["code", *words, option, *value]) == UsageError.exit_code, (words, option)
            assert f"{option} is an option of `code push`" in capsys.readouterr().err
    for action in SUBCOMMANDS:
        assert main(["code", action, "--help"]) == 0
        text = capsys.readouterr().out
        assert [option in text for option in options.values()] == [action == "push"] * len(options), action


def test_an_image_that_is_not_there_is_an_error(store: Store, capsys: Streams) -> None:
    assert main(["code", "push", f"{REPOSITORY}:nothing", "src"]) == RegistryError.exit_code
    assert "is not there" in capsys.readouterr().err


def test_nothing_old_is_no_error(store: Store, capsys: Streams) -> None:
    result(capsys, "push", IMAGE, "src")
    assert result(capsys, "prune", REPOSITORY) == {"tags": []}
    assert main(["code", "prune", REPOSITORY]) == 0
    assert "no code older than 7 days" in capsys.readouterr().err


def test_prune_of_a_folder_asks_no_registry(tmp_path: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "registry_of", lambda *_, **__: pytest.fail("a registry was asked"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"runs/code-sha256-{'a' * 64}.squashfs"
    path.parent.mkdir()
    path.write_text("12345")
    os.utime(path, (0, 0))
    for words, outcome in ((("./runs", "--dry-run"), "old"), ((str(path.parent),), "deleted")):
        assert path.exists()
        (row,) = result(capsys, "prune", *words)["files"]
        assert (Path(row["path"]).name, row["bytes"], row["outcome"]) == (path.name, 5, outcome)
    assert not path.exists()
    assert main(["code", "prune", "./runs"]) == 0
    assert "no file" in capsys.readouterr().err
    assert main(["code", "prune", "./nowhere"]) == UsageError.exit_code
