"""The JSON Schema of matrix.yaml, by which editors check it while it is typed. Pure."""

import json

from torchbake.matrix.model import Matrix


def schema_text() -> str:
    """The schema as it is written: generated from the model, the same to the byte every time."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Matrix.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"
