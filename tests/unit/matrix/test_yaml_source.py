"""A YAML file as plain values: the text that was written, a line for every key, and an end to everything."""

import os
import time
from pathlib import Path

import pytest

from torchbake.errors import MatrixError
from torchbake.matrix.yaml_source import parse_document, read_document


@pytest.fixture
def matrix_file(tmp_path: Path) -> Path:
    return tmp_path / "matrix.yaml"


def message_of(path: Path) -> str:
    with pytest.raises(MatrixError) as caught:
        read_document(path)
    return caught.value.message


def test_versions_stay_the_text_that_was_written() -> None:
    text = "a: 012\nb: yes\nc: 1e3\nd: 2.10\n"
    assert parse_document(text, Path("x")).data == {"a": "012", "b": "yes", "c": "1e3", "d": "2.10"}


def test_an_empty_value_is_nothing_but_a_quoted_one_is_text() -> None:
    assert parse_document('a:\nb: ~\nc: "null"\n', Path("x")).data == {"a": None, "b": None, "c": "null"}


def test_a_key_of_a_list_has_its_own_line() -> None:
    document = parse_document("a:\n  - x\n  -\n    b: 1\n", Path("x"))
    assert [document.line(at) for at in (("a",), ("a", 1), ("a", 1, "b"), ("a", 1, "b", "none"))] == [1, 4, 4, 4]


def laughs(levels: int = 9, each: int = 9) -> str:
    """Aliases that expand to each ** levels values."""
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * each)}]" for n in range(1, levels + 1))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (laughs(), "aliases"),
        ("repository: " + "[" * 50_000 + "]" * 50_000 + "\n", "levels deep"),
        ("repository: " + "{a: " * 50_000 + "}" * 50_000 + "\n", "levels deep"),
        ("- " * 50_000 + "a\n", "levels deep"),
    ],
    ids=["aliases", "lists", "mappings", "dashes"],
)
def test_a_file_of_exponential_aliases_is_refused_at_once(text: str, words: str, matrix_file: Path) -> None:
    matrix_file.write_text(text)
    start = time.monotonic()
    assert words in message_of(matrix_file)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_a_matrix_that_is_no_file_is_refused_and_not_waited_for(kind: str, matrix_file: Path) -> None:
    if kind == "a pipe":
        os.mkfifo(matrix_file)
    else:
        matrix_file.symlink_to("/dev/zero")
    assert "pipe or a device" in message_of(matrix_file)
