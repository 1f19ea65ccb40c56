"""The lint of prose and names: each rule finds a bad sentence and lets a good one pass."""

import ast
from pathlib import Path

import pytest

from tests import words

SENTENCES = {
    "Those that its row tells.": "Return the tags of an image, or None if it has none.",
    "What became of one image.": "The result of one image's build.",
    "Whether a lock is trusted.": "Tell if a lock is trusted.",
    "The engine pulls those that it lacks.": "The engine pulls the layers that it lacks.",
    "Build the image of what is here.": "Build the image of the files in this folder.",
    "Read the former and check it.": "Read the lock and check it.",
    "The file is read anew each time.": "The file is read again each time.",
    "An error is told by the caller.": "The caller reports an error.",
    "The image stands on a base.": "The image is based on Debian.",
    "Say " + "a word and " * 11 + "stop.": "Say " + "a word and " * 4 + "stop.",
}


@pytest.mark.parametrize(("bad", "good"), SENTENCES.items())
def test_a_bad_sentence_is_a_finding_and_its_rewrite_is_none(bad: str, good: str) -> None:
    assert words.problem(bad)
    assert words.problem(good) is None


def test_a_question_may_begin_with_an_interrogative() -> None:
    assert words.problem("Which image is this?") is None


def test_code_counts_as_one_word() -> None:
    [sentence] = words.sentences("Run `what is in those that` again.")
    assert words.problem(sentence) is None


@pytest.mark.parametrize(
    "source",
    [
        '"""Whether it is so."""\n',
        "# Whether it\n# is so.\nx = 1\n",
        "x = 1  # Whether it is so.\n",
        'raise ValueError("Whether it is so.")\n',
        'print(f"Whether it is {1} so.")\n',
    ],
)
def test_docstrings_comments_and_messages_of_python_are_read(source: str) -> None:
    [finding] = words.findings("a.py", source)
    assert str(finding).startswith("a.py:1: a clause in the place of the subject: Whether it is ")


def test_a_hash_in_a_text_begins_no_comment() -> None:
    assert [*words.findings("a.py", 'x = """\n# Whether it is so.\n"""\n')] == []


@pytest.mark.parametrize("line", ["# Whether it is so.", "{# Whether it is so. #}", "key: 1  # Whether it is so."])
def test_comments_of_other_files_are_read(line: str) -> None:
    assert [finding.first for finding in words.findings("a.yaml", f"key: 1\n{line}\n")] == [2]


@pytest.mark.parametrize(
    "source",
    ["told = 1", "def told(): ...", "def f(told): ...", "class Told: ...", "self._told = 1", "for told in x: ..."],
)
def test_a_participle_is_no_name(source: str) -> None:
    assert [finding.rule for finding in words.findings("a.py", source)] == ["a participle as a name"]
    assert [*words.findings("a.py", source.replace("told", "output").replace("Told", "Output"))] == []


def test_two_public_classes_of_one_name() -> None:
    one, other = "class Job: ...\nclass _Part: ...\n", "class _Part: ...\n\nclass Job: ...\n"
    [finding] = words.twins({"torchbake/a.py": one, "layers/b.py": other, "tests/c.py": one})
    assert (finding.path, finding.first, finding.text) == ("layers/b.py", 3, "torchbake/a.py (Job)")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two findings in `a` and none in `b`, in the place of the repository."""
    files = {"a/x.py": "told = 1\nsaid = 2\n", "b/x.py": "output = 1\n"}
    monkeypatch.setattr(words, "read", lambda _: files)
    monkeypatch.setattr(words, "ALLOWANCE", tmp_path / "words.toml")
    return tmp_path / "words.toml"


@pytest.mark.parametrize(
    ("allowance", "code"), [("", 1), ("a = 1", 1), ("a = 2", 0), ("a = 3", 1), ("a = 2\nb = 1", 1)]
)
def test_a_folder_has_as_many_findings_as_are_allowed(tree: Path, allowance: str, code: int) -> None:
    tree.write_text(allowance)
    assert words.main([]) == code


def test_since_a_commit_only_added_lines_count(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.write_text("a = 2")
    monkeypatch.setattr(words, "added", lambda _: {"a/x.py": {2}, "b/x.py": {1}})
    assert words.main(["--since", "HEAD"]) == 1
    assert capsys.readouterr().out == "a/x.py:2: a participle as a name: said\n"


def test_the_lint_itself_has_plain_words() -> None:
    source = Path(words.__file__).read_text(encoding="utf-8")
    assert ast.parse(source)
    assert [*words.findings("tests/words.py", source)] == []
