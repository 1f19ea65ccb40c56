"""``docs/reference/job.md``: every key of job.yaml, generated from the model. Pure."""

from typing import Any

from torchbake.jobs.model import Job
from torchbake.matrix.manual import key_tables, page_with, whole_example

MARK = "<!-- from torchbake/jobs/model.py; `nox -s schema` writes it -->\n"
_EITHER_OR = ("module", "command", "elastic")  # alternatives to `script` and `nodes`: no job has both


def with_reference(page: str) -> str:
    """Replace the generated reference of the page, below its mark."""
    schema = Job.model_json_schema()
    parts = (*key_tables(schema), f"## A job with all keys\n\n```yaml\n{example_text(schema)}```\n")
    return page_with(page, MARK, parts)


def example_text(schema: dict[str, Any]) -> str:
    """Return a job with the examples of the top-level keys."""
    keys = {key: node for key, node in schema["properties"].items() if key not in _EITHER_OR}
    return whole_example({**schema, "properties": keys})
