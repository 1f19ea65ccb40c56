"""The frame of a bake file: its targets, and the variables whose values it takes from the environment. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any


def bake_frame(targets: Mapping[str, Any], default: Sequence[str], variables: Sequence[str]) -> dict[str, Any]:
    """Return a bake file of targets, each with the variables as build arguments.

    Values of variables may contain passwords, so the file has only their names.
    """
    escaped = {name: _literal(target) for name, target in targets.items()}
    for target in escaped.values():
        target["args"] = target.get("args", {}) | {name: f"${{{name}}}" for name in variables}
    file = {"group": {"default": {"targets": [*default]}}, "target": escaped}
    # bake takes the values from the environment, and refuses variables without a declaration.
    return {"variable": {name: {"default": ""} for name in variables}, **file} if variables else file


def _literal(value: Any) -> Any:
    """Escape a value so that bake does not read it as a template."""
    if isinstance(value, str):
        return value.replace("${", "$${").replace("%{", "%%{")
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return {key: _literal(item) for key, item in value.items()} if isinstance(value, dict) else value
