"""Reference of a gate's file from the model: ``docs/reference/gate.md``. Pure."""

from torchbake.gate.model import GateFile
from torchbake.matrix.manual import key_tables, page_with, whole_example

MARK = "<!-- from torchbake/gate/model.py; `nox -s schema` writes it -->\n"


def with_reference(page: str) -> str:
    """Return the page with the reference below its mark generated again; the text above the mark stays."""
    schema = GateFile.model_json_schema()
    parts = (*key_tables(schema), f"## A gate with all keys\n\n```yaml\n{whole_example(schema)}```\n")
    return page_with(page, MARK, parts)
