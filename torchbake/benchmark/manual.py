"""``docs/benchmark-plans.md``: every key of a plan, as the model has it. Pure."""

from torchbake.benchmark.model import Plan
from torchbake.matrix.manual import key_tables, page_with, whole_example

MARK = "<!-- from torchbake/benchmark/model.py; `nox -s schema` writes it -->\n"


def with_reference(page: str) -> str:
    """The page with the words that stand above its mark, and the reference made anew below."""
    schema = Plan.model_json_schema()
    parts = (*key_tables(schema), f"## A plan with all keys\n\n```yaml\n{whole_example(schema)}```\n")
    return page_with(page, MARK, parts)
