"""What is wrong with a matrix file: every problem at once, each with file, line and key, in the file's words."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from torchbake.core.suggest import nearest
from torchbake.errors import MatrixError
from torchbake.matrix.yaml_source import Document, Location


def problems(document: Document, found: list[tuple[Location, str]]) -> MatrixError:
    """One error for all that is wrong, in the file's order."""
    unique = dict.fromkeys(found)  # one mistake in a row shows in each of its combinations
    lines = [f"{document.where(at)}: {text}" for at, text in sorted(unique, key=lambda p: document.line(p[0]))]
    head = lines[0] if len(lines) == 1 else f"{len(lines)} problems:\n  " + "\n  ".join(lines)
    return MatrixError(head, hint=f"Correct {document.path}; `nox -s schema` gives editors a schema for it.")


def explain(
    problem: ErrorDetails, model: type[BaseModel], *, removed: Mapping[str, str] = MappingProxyType({})
) -> tuple[Location, str]:
    """One of pydantic's problems with a file, whose whole is a ``model``: where it stands, and what it is.

    pydantic speaks of Python's types; a YAML file has mappings, lists and values. ``removed`` has the keys of earlier
    versions, each with a sentence: the reason, and the next step.
    """
    location: Location = tuple(part for part in problem["loc"] if part != "[key]")
    kind, value = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        return location, removed.get(str(location[-1])) or _unknown_key(location, model)
    if kind == "missing":
        return location, "is missing"
    if kind == "value_error":
        return location, str(problem["ctx"]["error"])
    if kind == "string_pattern_mismatch":
        pattern: str = problem["ctx"]["pattern"]
        if re.search(pattern, value.lower()):
            return location, f"{value!r} has upper case letters: write {value.lower()}"
        return location, f"{value!r} does not fit the form {pattern}" + _example(location, model)
    shown = f" (got {value!r})" if isinstance(value, str) or value is None else f" (got a {_kind(value)})"
    said = _PLAIN.get(kind, "").format(**problem.get("ctx", {})) or problem["msg"][0].lower() + problem["msg"][1:]
    return location, said + shown


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


def _kind(value: Any) -> str:
    names: dict[type, str] = {dict: "mapping", list: "list"}
    return names.get(type(value), type(value).__name__)


def _unknown_key(location: Location, model: type[BaseModel]) -> str:
    known = _known_keys(location[:-1], model)
    near = nearest(str(location[-1]), known, count=1)
    guess = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known)}" if known else ""
    return f"unknown key {location[-1]!r}{guess}"


def _known_keys(location: Location, model: type[BaseModel]) -> list[str]:
    """The keys a mapping at ``location`` may have."""
    return list(_node(location, model).get("properties", {}))


def _example(location: Location, model: type[BaseModel]) -> str:
    """What would be right there, where the model has an example of one value."""
    examples = [each for each in _node(location, model).get("examples", []) if isinstance(each, str)]
    return f"; an example: {examples[0]}" if examples else ""


def _node(location: Location, model: type[BaseModel]) -> dict[str, Any]:
    """What the JSON Schema says of ``location``, so that there is one list of keys and one of examples."""
    schema = model.model_json_schema()
    node: dict[str, Any] = schema
    for part in location:
        node = _resolve(schema, node)
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            extra: Any = node.get("additionalProperties") or next(iter(node.get("patternProperties", {}).values()), {})
            node = node.get("properties", {}).get(part) or (extra if isinstance(extra, dict) else {})
    return _resolve(schema, node)


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = {**schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], **{k: v for k, v in node.items() if k != "$ref"}}
    return node
