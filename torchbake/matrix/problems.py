"""Messages about mistakes in a YAML file: every mistake at once, each with file, line and key."""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from torchbake.core.suggest import nearest
from torchbake.errors import MatrixError
from torchbake.matrix.yaml_source import Document, Location
from torchbake.ui.command import Command


def problems(document: Document, errors: list[tuple[Location, str]]) -> MatrixError:
    """One error with all problems, in the file's order."""
    unique = dict.fromkeys(errors)  # a mistake in a row is found in each of its combinations
    lines = [f"{document.where(at)}: {text}" for at, text in sorted(unique, key=lambda p: document.line(p[0]))]
    head = lines[0] if len(lines) == 1 else f"{len(lines)} problems:\n  " + "\n  ".join(lines)
    return MatrixError(head, hint=f"Correct {document.path}; `{Command('schema')}` gives editors a schema for it.")


def explain(
    problem: ErrorDetails, model: type[BaseModel], *, removed: Mapping[str, str] = MappingProxyType({})
) -> tuple[Location, str]:
    """Translate an error of pydantic, which speaks of Python's types, into the terms of a YAML file.

    Returns the location in the file and the message.
    The model of the whole file is ``model``. A key of earlier versions has a sentence with the reason and the next step
    in ``removed``.
    """
    location: Location = tuple(part for part in problem["loc"] if part != "[key]")
    kind, value = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        text = removed.get(str(location[-1])) or _unknown_key(location, model)
    elif kind == "missing":
        text = "is missing"
    elif kind == "value_error":
        text = str(problem["ctx"]["error"])
    elif kind == "string_pattern_mismatch" and re.search(problem["ctx"]["pattern"], value.lower()):
        text = f"{value!r} has upper case letters: write {value.lower()}"
    elif kind == "string_pattern_mismatch":
        examples = [each for each in _node(location, model).get("examples", []) if isinstance(each, str)]
        text = f"{value!r} does not fit the form {problem['ctx']['pattern']}"
        text += f"; an example: {examples[0]}" if examples else ""
    elif kind == "literal_error" and isinstance(value, str):
        words = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
        near = nearest(value, words, count=1)
        text = f"{value!r} is unknown; " + (f"did you mean {near[0]!r}?" if near else f"write {' or '.join(words)}")
    else:
        text = _PLAIN.get(kind, "").format(**problem.get("ctx", {})) or problem["msg"][0].lower() + problem["msg"][1:]
        names: dict[type, str] = {dict: "a mapping", list: "a list"}
        literal = (
            repr(value) if isinstance(value, str) or value is None else names.get(type(value), type(value).__name__)
        )
        text += f" (got {literal})"
    return location, text


_PLAIN = {
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "bool_parsing": "should be true or false",
    "greater_than_equal": "should be at least {ge}",
    "less_than_equal": "should be at most {le}",
    "tuple_type": "should be a list",
    "dict_type": "should be a mapping",
    "model_type": "should be a mapping",
    "string_type": "should be one value",
    "too_short": "needs at least one entry",
}


def _unknown_key(location: Location, model: type[BaseModel]) -> str:
    known_names = list(_node(location[:-1], model).get("properties", {}))
    near = nearest(str(location[-1]), known_names, count=1)
    guess = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known_names)}" if known_names else ""
    return f"unknown key {location[-1]!r}{guess}"


def _node(location: Location, model: type[BaseModel]) -> dict[str, Any]:
    """Return the part of the model's JSON Schema that describes ``location``."""
    node = schema = _schema(model)
    for part in location:
        node = _resolve(schema, node)
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            extra: Any = node.get("additionalProperties") or next(iter(node.get("patternProperties", {}).values()), {})
            node = node.get("properties", {}).get(part) or (extra if isinstance(extra, dict) else {})
    return _resolve(schema, node)


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model, which takes pydantic 15 ms to make."""
    return model.model_json_schema()


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = {**schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], **{k: v for k, v in node.items() if k != "$ref"}}
    return node
