"""Formats of files: today's torchbake reads the committed examples, and refuses files of a newer format."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from torchbake.benchmark.model import load_plan
from torchbake.benchmark.records import Records
from torchbake.checks.statement import read_statement
from torchbake.core.file_format import FORMATS, why_too_new
from torchbake.core.paths import TOOLKIT
from torchbake.debian.lockfile import parse_debian_lock
from torchbake.errors import TorchbakeError
from torchbake.gate.load import load_gate
from torchbake.jobs.load import load_job
from torchbake.lock.lockfile import parse_lock
from torchbake.matrix.base_lock import parse_base_lock
from torchbake.matrix.project import load_project
from torchbake.proof.record import parse_proofs
from torchbake.release.record import parse_record

EXAMPLES = TOOLKIT / "tests/unit/formats"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The file of a kind in each folder of examples, its reader, and an edit that makes its format newer."""

    file: str
    read: Callable[[Path], Any]
    edit: tuple[str, str]


KINDS = {
    "matrix.yaml": Kind(file="matrix.yaml", read=load_project, edit=("format: 1", "format: 2\nnew-key: 1")),
    "job.yaml": Kind(file="job.yaml", read=load_job, edit=("format: 1", "format: 2\nnew-key: 1")),
    "benchmark plan": Kind(file="plan.yaml", read=load_plan, edit=("format: 1", "format: 2\nnew-key: 1")),
    "gate": Kind(file="gate.yaml", read=load_gate, edit=("format: 1", "format: 2\nnew-key: 1")),
    "requirements.lock": Kind(
        file="requirements.lock",
        read=lambda path: parse_lock(path.read_text(), path.name),
        edit=("# inputs:", "# format: 2\n# new: 1\n# inputs:"),
    ),
    "Debian lock": Kind(
        file="debian12.lock",
        read=lambda path: parse_debian_lock(path.read_text(), path.name),
        edit=('suite = "bookworm"', "format = 2"),
    ),
    "base lock": Kind(
        file="bases.lock",
        read=lambda path: parse_base_lock(path.read_text(), path.name),
        edit=("format = 1", "format = 2"),
    ),
    "verdict": Kind(
        file="verdict.json", read=lambda path: read_statement(path.read_bytes()), edit=("#verdict-v1", "#verdict-v2")
    ),
    "release record": Kind(
        file="record.json",
        read=lambda path: parse_record(path.read_bytes(), path.name),
        edit=('"format": 1', '"format": 2'),
    ),
    "benchmark results": Kind(
        file="results.jsonl",
        read=lambda path: Records(path=path).all(),
        edit=('{"experiment"', '{"format": 2, "experiment"'),
    ),
    "proofs.json": Kind(
        file="proofs.json",
        read=lambda path: parse_proofs(path.read_bytes(), path.name),
        edit=("[\n", '{"format": 2, "images": [\n'),
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_has_a_readable_example(name: str) -> None:
    for number in range(1, FORMATS[name] + 1):
        assert KINDS[name].read(EXAMPLES / str(number) / KINDS[name].file)


@pytest.mark.parametrize("name", FORMATS)
def test_a_newer_format_is_refused(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    path = Path(shutil.copy(EXAMPLES / str(FORMATS[name]) / kind.file, tmp_path))
    text = path.read_text()
    assert kind.edit[0] in text
    text = text.replace(*kind.edit, 1)
    path.write_text(text + "}" * text.startswith('{"format": 2, "images"'))
    with pytest.raises((TorchbakeError, ValueError)) as refused:
        kind.read(path)
    sentence = refused.value.sentence if isinstance(refused.value, TorchbakeError) else str(refused.value)
    assert "has format 2" in sentence
    assert "pip install --upgrade torchbake" in sentence


@pytest.mark.parametrize("value", [None, "", "one", "0", "-2", "1", 1, True, 1.5, "9" * 5000, [2]])
def test_a_value_that_is_no_newer_number_is_left_to_the_reader(value: object) -> None:
    assert why_too_new("matrix.yaml", value) == ""


@pytest.mark.parametrize(("edit", "problem"), [("format: one", "whole number"), ("format: 0", "at least 1")])
def test_a_matrix_with_a_wrong_format_names_its_line(edit: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text((EXAMPLES / "1/matrix.yaml").read_text().replace("format: 1", edit, 1))
    with pytest.raises(TorchbakeError, match=rf"matrix\.yaml:1: format: .*{problem}"):
        load_project(path)


def test_the_page_has_the_format_of_each_kind() -> None:
    page = (TOOLKIT / "docs/reference/schemas.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, flags=re.MULTILINE)
    assert {name.replace("`", ""): int(number) for number, name in rows} == dict(FORMATS)
