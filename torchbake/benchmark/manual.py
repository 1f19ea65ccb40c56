"""``docs/benchmark-plans.md`` and ``benchmark.schema.json``: every key of a plan, as the model has it. Pure."""

import json

from torchbake.benchmark.model import Plan
from torchbake.matrix.manual import key_tables, whole_example

MARK = "<!-- from torchbake/benchmark/model.py; `nox -s schema` writes it -->\n"


def schema_text() -> str:
    """The schema by which editors check a plan while it is typed: the same to the byte every time."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Plan.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


def with_reference(page: str) -> str:
    """The page with the words that stand above its mark, and the reference made anew below."""
    schema = Plan.model_json_schema()
    parts = (*key_tables(schema), f"## A plan with all keys\n\n```yaml\n{whole_example(schema)}```\n")
    return f"{page.partition(MARK)[0]}{MARK}\n" + "\n".join(parts)
