"""Objects as YAML, for people to read and programs to take. Pure."""

import re
from collections.abc import Iterable
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes YAML without anchors, texts of several lines as blocks, and lists indented below their key."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
# Texts that kubectl and Helm read as numbers or booleans, but PyYAML as texts: the dumper must quote them.
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+|[yYnN])$"),
    list("-+.0123456789yYnN"),
)


def documents(objects: Iterable[dict[str, Any]], *, head: str = "") -> str:
    """Return a YAML document for each object, below ``head`` as a comment."""
    texts = [yaml.dump(each, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True) for each in objects]
    comment = "".join(f"# {line}\n" for line in head.splitlines())
    return comment + "---\n".join(texts)


def without_nothing(mapping: dict[str, Any]) -> dict[str, Any]:
    """Remove None and empty texts, lists and mappings from a mapping."""
    return {key: value for key, value in mapping.items() if value is not None and value not in ("", [], {}, ())}
