"""``docs/reference/matrix.md``: every key of matrix.yaml, generated from the model's schema. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from torchbake.matrix.expand import expand
from torchbake.matrix.model import Matrix, validate_matrix
from torchbake.matrix.spec import pytorch_of
from torchbake.matrix.tags import PARTS
from torchbake.matrix.yaml_source import parse_document

MARK = "<!-- from torchbake/matrix/model.py; `nox -s schema` writes it -->\n"
_SCALARS = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false"}

Node = Mapping[str, Any]


def with_reference(page: str) -> str:
    """Replace the generated reference of the page, below its mark."""
    schema = Matrix.model_json_schema()
    whole = whole_example(schema)
    parts = (*key_tables(schema), _tag_parts(whole), f"## A whole matrix\n\n```yaml\n{whole}```\n")
    return page_with(page, MARK, parts)


def page_with(page: str, mark: str, parts: Iterable[str]) -> str:
    """Replace the generated parts of a page, below its mark."""
    return f"{page.partition(mark)[0]}{mark}\n" + "\n".join(parts)


def key_tables(schema: Node) -> list[str]:
    """Return a section for each mapping of the file, in the file's order; mappings with several places come last."""
    titles = _titles(schema)
    parts = [_section("The file", schema, schema)]
    parts += [_section(f"`{title}`", schema["$defs"][name], schema, paths) for name, (title, paths) in titles.items()]
    return parts


def whole_example(schema: Node) -> str:
    """Return a file with the examples of the top-level keys."""
    examples = {key: _order(node["examples"][0], node, schema) for key, node in schema["properties"].items()}
    return yaml.safe_dump(examples, sort_keys=False, default_flow_style=None, width=110)


def example_of(key: str, node: Node, schema: Node) -> str:
    """Return a key with its example, as one line of YAML."""
    example = {key: _order(node["examples"][0], node, schema)}
    text = yaml.safe_dump(example, sort_keys=False, default_flow_style=True, width=10_000)
    return text.strip()[1:-1]  # without the braces it is YAML too


def _order(value: Any, node: Node, schema: Node) -> Any:
    """Sort the keys of a value in the order of the model, since pydantic sorts the keys of examples by name."""
    if "$ref" in node:
        return _order(value, schema["$defs"][_name(node)], schema)
    if isinstance(value, list):
        return [_order(one, node.get("items", {}), schema) for one in value]
    if isinstance(value, dict):
        known_keys = node.get("properties") or dict.fromkeys(value, _values(node))
        return {key: _order(value[key], inner, schema) for key, inner in known_keys.items() if key in value}
    return value


def _titles(schema: Node) -> dict[str, tuple[str, list[str]]]:
    """Return by model the heading of its section, and its places in the file if it has several."""
    paths_of: dict[str, list[str]] = {}
    for name, path in places(schema):
        paths_of.setdefault(name, []).append(path)
    alone = {name: (paths[0], list[str]()) for name, paths in paths_of.items() if len(paths) == 1}
    shared = {name: (name.lower(), paths) for name, paths in paths_of.items() if len(paths) > 1}
    return alone | shared


def places(schema: Node) -> list[tuple[str, str]]:
    """Return the names of the inner models, each with its path of keys: `*` is any name, `[]` any entry of a list."""
    return list(_walk(schema, schema, ""))


def _walk(schema: Node, node: Node, path: str) -> Iterator[tuple[str, str]]:
    for key, value in node.get("properties", {}).items():
        for name, steps in _models(value):
            here = f"{path}{key}{steps}"
            yield name, here
            yield from _walk(schema, schema["$defs"][name], f"{here}.")


def _models(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the models of a value, with the steps to each."""
    if "$ref" in node:
        yield _name(node), ""
    inner = [("[]", node.get("items")), (".*", _values(node)), *(("", one) for one in node.get("anyOf", ()))]
    for step, value in ((step, value) for step, value in inner if value):
        for name, steps in _models(value):
            yield name, step + steps


def _name(node: Node) -> str:
    return str(node["$ref"]).rpartition("/")[2]


def _values(node: Node) -> Node:
    """Return the schema of the values of a mapping with arbitrary keys."""
    extra = node.get("additionalProperties")
    return next(iter(node.get("patternProperties", {}).values()), extra if isinstance(extra, dict) else {})


def _section(heading: str, model: Node, schema: Node, paths: Iterable[str] = ()) -> str:
    titles = _titles(schema)
    lines = [f"## {heading}", "", model["description"], ""]
    if paths:
        lines += [f"Used at {', '.join(f'`{path}`' for path in paths)}.", ""]
    lines += ["| key | meaning | type | default | example |", "| --- | --- | --- | --- | --- |"]
    for key, node in model["properties"].items():
        default = _default(node) if key not in model.get("required", ()) else "must be given"
        cells = (f"`{key}`", node["description"], _kind(node, titles), default, f"`{example_of(key, node, schema)}`")
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _default(node: Node) -> str:
    value = node.get("default")
    if _is_empty(value):
        return "not set" if value is None and node.get("type") != "object" else "empty"
    if "$ref" in node:
        return "the defaults of its keys"
    text = value if isinstance(value, str) else yaml.safe_dump([value], default_flow_style=True).strip()[1:-1]
    return f"`{text}`"


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value is None or value in ("", [])


def _kind(node: Node, titles: Mapping[str, tuple[str, list[str]]]) -> str:
    """Describe the type of a value."""
    if "$ref" in node:
        title = titles[_name(node)][0]
        return f"[`{title}`](#{anchor(title)})"
    choices = [one for one in node.get("anyOf", ()) if one.get("type") != "null"]
    if choices:
        return _kind(choices[0], titles) + (", or a list of such" if len(choices) > 1 else "")
    if "const" in node or "enum" in node:
        return " or ".join(f"`{word}`" for word in node.get("enum") or [node["const"]])
    kind = node.get("type", ())
    if kind == "array":
        return "list: " + _kind(node["items"], titles)
    if kind == "object":
        pattern = next(iter(node.get("patternProperties", ())), "")
        names = f"names `{pattern}`" if pattern else "any names"
        return f"mapping, {names}, to: {_kind(_values(node), titles)}"
    kinds = [kind] if isinstance(kind, str) else kind
    words = [" or ".join(_SCALARS[kind] for kind in kinds)]
    words += [f"`{node['pattern']}`"] if "pattern" in node else []
    words += [f"{node['minLength']} characters or more"] if "minLength" in node else []
    return ", ".join(filter(None, words)) or "any"


def anchor(title: str) -> str:
    """Return the link to a heading, by GitHub's rules."""
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")


def _tag_parts(matrix: str) -> str:
    """Return the table of the parts of a tag, with the values of the first image of a matrix."""
    document = parse_document(matrix, Path("docs/reference/matrix.md"))
    spec = pytorch_of(expand(validate_matrix(document), document).specs)[0]
    lines = ["## Parts of a tag", "", "The parts of forms in `tags.rolling`.", ""]
    lines += [f"| part | its value for {spec.id} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| `{{{part}}}` | `{value(spec)}` |" for part, value in PARTS.items()), ""])
