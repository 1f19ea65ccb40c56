"""The JSON Schema of a hand-edited file, for editors. Pure."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import BaseModel


@cache
def editor_schema(model: type[BaseModel], *, extend: Callable[[Any], Any] = lambda schema: schema) -> str:
    """Return the text of the schema, generated from the file's model.

    ``extend`` adds the parts of the file that the model does not see.
    """
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **extend(model.model_json_schema())}
    return json.dumps(schema, indent=2) + "\n"
