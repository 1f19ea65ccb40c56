"""The project's `.dockerignore`, read as Docker reads it."""

import time
from pathlib import Path

import pytest

from torchbake.errors import MatrixError
from torchbake.matrix import dockerignore
from torchbake.matrix.dockerignore import DockerIgnore, read_ignore


@pytest.mark.parametrize(
    ("text", "out", "kept_value"),
    [
        ("", "", "a .env"),
        ("# a comment\n\n .env \n", ".env .env/a", "a/.env .envx a comment"),
        ("/src/./x//y/", "src/x/y src/x/y/z", "src/x src/x/yy"),
        ("*.log", "a.log .log", "b/a.log a.logs"),
        ("*/*.log", "b/a.log", "a.log c/b/a.log"),
        ("**/*.log", "a.log b/a.log c/b/a.log", "a.logs"),
        ("a/**", "a/b a/b/c", "a b/a"),
        ("a/**/z", "a/z a/b/z a/b/c/z a/z/x", "a/zz b/a/z"),
        ("?", "a a/b", "ab .env"),
        ("[ab]?.txt", "ax.txt", "a.txt cx.txt"),
        ("a.b", "a.b", "axb"),
        ("a\\*", "a*", "ab"),
        ("*\n!src\nsrc/.env", "a src/.env", "src src/a src/b/.env"),
        ("! src\nsrc\n!src/keep", "src src/a", "src/keep src/keep/a"),
        ("\ufeffa\n.\n/\n!\n", "a", "b"),
        ("a\r\nb", "a b", "c"),
    ],
)
def test_patterns_mean_what_they_mean_to_docker(
    text: str, out: str, kept_value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".dockerignore").write_bytes(text.encode())
    ignore = read_ignore(tmp_path)
    for steps in (dockerignore._STEPS, -1):  # as a regular expression, and piece by piece
        monkeypatch.setattr(dockerignore, "_STEPS", steps)
        assert [path for path in (out + " " + kept_value).split() if ignore.leaves_out(path)] == out.split()


@pytest.mark.parametrize(
    "pattern", ["**/" * 10 + "x", "**/a/" * 10 + "x", "*a" * 20 + "x", "**a" * 20 + "x", "**/*a*/" * 9]
)
def test_no_pattern_takes_long_on_a_deep_path(pattern: str) -> None:
    start = time.process_time()
    ignore = DockerIgnore(lines=(pattern,))
    assert not ignore.leaves_out("a/" * 1000 + "b")
    assert not ignore.leaves_out("a" * 200 + "/b")
    assert time.process_time() - start < 30


def test_without_one_nothing_is_left_out(tmp_path: Path) -> None:
    assert read_ignore(tmp_path) == DockerIgnore()


def test_a_pattern_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_text("[z-a]")
    with pytest.raises(MatrixError, match=r"\.dockerignore: '\[z-a\]' is not a pattern that Docker reads"):
        read_ignore(tmp_path).leaves_out("a")


def test_what_is_named_itself_is_taken_with_all_that_it_holds() -> None:
    ignore = DockerIgnore(lines=("*", "!src", "**/.env"))
    used_names = ("files/a", "files/.env", "src/a", "other/.env", "layers/.env")
    sources = ("files", "src", "other/.env")
    assert [path for path in (*used_names, "src/.env", "src/b/.env") if ignore.takes(path, sources)] == [*used_names]
