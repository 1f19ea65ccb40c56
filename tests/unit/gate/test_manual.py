"""docs/reference/gate.md and the schema agree with the model, and the examples of the pages are valid."""

import re
from pathlib import Path

import pytest

from torchbake.commands.schema import GATE_PAGE, GATE_SCHEMA
from torchbake.core.paths import TOOLKIT
from torchbake.gate.load import read_gate
from torchbake.gate.manual import MARK, with_reference
from torchbake.gate.model import GateFile
from torchbake.matrix.schema import editor_schema

TEXT = GATE_PAGE.read_text(encoding="utf-8")
GUIDE = (TOOLKIT / "docs/how-to/release-gate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?ms)^```yaml\n(.*?)^```$", TEXT + GUIDE)


def test_the_page_and_the_schema_are_what_the_model_says() -> None:
    assert with_reference(TEXT) == TEXT, "run: nox -s schema"
    assert GATE_SCHEMA.read_text(encoding="utf-8") == editor_schema(GateFile), "run: nox -s schema"


def test_every_key_of_the_model_has_its_row() -> None:
    schema = GateFile.model_json_schema()
    keys = sorted(key for model in (schema, *schema["$defs"].values()) for key in model["properties"])
    assert sorted(re.findall(r"(?m)^\| `(\w+)` \|", TEXT.partition(MARK)[2])) == keys


@pytest.mark.parametrize("text", BLOCKS)
def test_a_gate_of_the_pages_is_one(text: str) -> None:
    gate = read_gate(text, Path("gate.yaml"))
    assert gate.refuse


def test_there_are_such_examples() -> None:
    assert len(BLOCKS) >= 3
