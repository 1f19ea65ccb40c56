"""``docs/job.md`` and ``job.schema.json``: every key of job.yaml, as the model has it. Pure."""

import json
from typing import Any

from torchbake.jobs.model import Job
from torchbake.matrix.manual import key_tables, whole_example

MARK = "<!-- from torchbake/jobs/model.py; `nox -s schema` writes it -->\n"
_EITHER_OR = ("module", "elastic")  # in place of `script` and `nodes`: no job has both


def schema_text() -> str:
    """The schema by which editors check a job while it is typed: the same to the byte every time."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Job.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


def with_reference(page: str) -> str:
    """The page with the words that stand above its mark, and the reference made anew below."""
    schema = Job.model_json_schema()
    parts = (*key_tables(schema), f"## A job with all keys\n\n```yaml\n{example_text(schema)}```\n")
    return f"{page.partition(MARK)[0]}{MARK}\n" + "\n".join(parts)


def example_text(schema: dict[str, Any]) -> str:
    """A job made of the examples of the keys on top."""
    keys = {key: node for key, node in schema["properties"].items() if key not in _EITHER_OR}
    return whole_example({**schema, "properties": keys})
