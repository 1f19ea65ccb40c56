"""Reference of plans from the model: ``docs/reference/benchmark-plans.md`` and the schema for editors. Pure."""

from typing import Any

from torchbake.benchmark.model import Plan
from torchbake.matrix.manual import key_tables, page_with, whole_example
from torchbake.matrix.schema import editor_schema

MARK = "<!-- from torchbake/benchmark/model.py; `nox -s schema` writes it -->\n"
_REFERENCE = {"type": "string", "pattern": r"\$\{"}
_ABOUT = ("title", "description", "default", "examples")  # keywords that say nothing of a key's type


def with_reference(page: str) -> str:
    """Return the page with the reference below its mark generated again; the text above the mark stays."""
    schema = Plan.model_json_schema()
    parts = (*key_tables(schema), f"## A plan with all keys\n\n```yaml\n{whole_example(schema)}```\n")
    return page_with(page, MARK, parts)


def plan_schema() -> str:
    """Return the schema for editors, in which each value may be a reference, `${name}`."""
    return editor_schema(Plan, extend=_with_references)


def _with_references(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_references(one) for one in node]
    if not isinstance(node, dict):
        return node
    inner = {
        key: value if key in (*_ABOUT, "propertyNames") else _with_references(value) for key, value in node.items()
    }
    if inner.get("type") not in ("integer", "number", "boolean", "array") and not isinstance(inner.get("pattern"), str):
        return inner
    about = {key: inner.pop(key) for key in _ABOUT if key in inner}
    return {**about, "anyOf": [inner, _REFERENCE]}
