"""The page for readers of other systems' documents: each of its rows names tests that exist, and names of ours."""

import re
from pathlib import Path

import pytest

from entrypoints.pytorch.throughput.flags import parse
from torchbake.benchmark.model import Plan
from torchbake.core.paths import TOOLKIT

PAGE = (TOOLKIT / "docs/how-to/coming-from.md").read_text(encoding="utf-8")
# By heading: the rows of its table, each a list of cells.
TABLES = {
    section.partition("\n")[0]: [
        re.split(r"(?<!\\)\|", line)[1:-1]
        for line in section.splitlines()
        if re.match(r"\| (?!---|in the document)", line)
    ]
    for section in PAGE.split("\n## ")[1:]
}
ROWS = [row for rows in TABLES.values() for row in rows]


def problems(row: list[str], root: Path = TOOLKIT) -> list[str]:
    """The tests of a row that do not exist."""
    own_name = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", row[-1])
    if not own_name:
        return [f"no test: {row[0]}"]
    return [
        f"{path}::{test}"
        for path, test in own_name
        if not (root / path).is_file() or (test and f"\ndef {test}(" not in (root / path).read_text(encoding="utf-8"))
    ]


def names(table: str) -> set[str]:
    """The code in the first column."""
    return {name for row in TABLES[table] for name in re.findall(r"`([^`]+)`", row[0])}


def test_each_row_names_a_test_that_exists() -> None:
    assert len(TABLES) == 5
    assert min(map(len, TABLES.values())) > 5
    assert [problem for row in ROWS for problem in problems(row)] == []


@pytest.mark.parametrize(
    "cell", ["", "`tests/unit/test_nowhere.py`", "`tests/unit/test_coming_from.py::test_nothing`", "none"]
)
def test_a_row_without_a_test_is_noticed(cell: str) -> None:
    assert problems(["a", "b", cell])


def test_each_parameter_is_one_of_the_chart() -> None:
    described = set(re.findall(r"@param (\S+)", (TOOLKIT / "charts/pytorch/values.yaml").read_text(encoding="utf-8")))
    parameters = {name for name in names("A Helm chart for PyTorch") if re.fullmatch(r"[a-zA-Z]+(\.[a-zA-Z]+)*", name)}
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
