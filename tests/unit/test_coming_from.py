"""The page for readers of other systems' documents: each row has tests that exist, and its names are ours."""

import re
import tomllib
from pathlib import Path

import pytest

from entrypoints.pytorch.throughput.flags import parse
from torchbake.benchmark.model import Plan
from torchbake.core.paths import TOOLKIT

PAGE = (TOOLKIT / "docs/how-to/coming-from.md").read_text(encoding="utf-8")
SECTIONS = {section.partition("\n")[0]: section for section in PAGE.split("\n## ")[1:]}
# By heading: the rows of its table, each a list of cells.
TABLES = {
    heading: [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in section.splitlines()
        if re.match(r"\| (?!---|in the document)", line)
    ]
    for heading, section in SECTIONS.items()
}
# By heading and first cell of a row: its tests.
PROOFS = tomllib.loads((TOOLKIT / "tests/unit/coming_from.toml").read_text(encoding="utf-8"))


def missing(tests: list[str], root: Path = TOOLKIT) -> list[str]:
    """Return the tests that do not exist, as FILE::NAME or FILE."""
    pairs = [name.partition("::") for name in tests]
    return [
        path + mark + test
        for path, mark, test in pairs
        if not (root / path).is_file() or (test and f"\ndef {test}(" not in (root / path).read_text(encoding="utf-8"))
    ]


def test_each_row_has_its_tests_and_no_others_do() -> None:
    assert len(TABLES) == 5
    assert min(map(len, TABLES.values())) > 5
    rows = {heading: [row[0] for row in rows] for heading, rows in TABLES.items()}
    assert {heading: [*proofs] for heading, proofs in PROOFS.items()} == rows


def test_the_tests_of_each_row_exist() -> None:
    lists = [tests for proofs in PROOFS.values() for tests in proofs.values()]
    assert all(lists)
    assert [name for tests in lists for name in missing(tests)] == []


@pytest.mark.parametrize("name", ["tests/unit/test_nowhere.py", "tests/unit/test_coming_from.py::test_nothing", "none"])
def test_a_test_that_does_not_exist_is_noticed(name: str) -> None:
    assert missing([name]) == [name]


def test_each_parameter_is_one_of_the_chart() -> None:
    described = set(re.findall(r"@param (\S+)", (TOOLKIT / "charts/pytorch/values.yaml").read_text(encoding="utf-8")))
    (block,) = re.findall(r"(?s)```text\n(.*?)```", SECTIONS["A Helm chart for PyTorch"])
    lines = [re.fullmatch(r"(?:([\w.]+): )?(.*)", line) for line in block.splitlines()]
    groups = [(line[1], line[2].split(", ")) for line in lines if line]
    parameters = {f"{group}.{name}" if group else name for group, names in groups for name in names}
    assert len(parameters) > 50
    assert parameters <= described


def test_each_flag_and_each_key_of_a_plan_is_ours(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    usage = capsys.readouterr().out
    rows = [row for row in TABLES["DLBS, a benchmarking suite"] if "newest version" not in row[0]]
    flags = {flag for row in rows for flag in re.findall(r"`(--\w+)`", row[0])}
    assert len(flags) == 14
    assert [flag for flag in sorted(flags) if flag not in usage] == []
    keys = {key for row in rows if "`pytorch." in row[0] for key in re.findall(r"`(\w+)`", row[1])}
    assert keys <= {*Plan.model_fields, "python", "bench"}
