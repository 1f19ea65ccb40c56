"""The JSON Schema of a file that people write, by which editors check it while it is typed. Pure."""

import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel


def editor_schema(model: type[BaseModel], *, extend: Callable[[Any], Any] = lambda schema: schema) -> str:
    """The schema as it is written: generated from the file's model, the same to the byte every time.

    ``extend`` adds what a file may have before the model sees it.
    """
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **extend(model.model_json_schema())}
    return json.dumps(schema, indent=2) + "\n"
