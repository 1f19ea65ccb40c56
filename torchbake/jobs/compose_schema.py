"""Compose and stack files against the schema of the Compose specification, which `check-jsonschema` brings along."""

import json
from importlib.resources import files
from typing import Any

import yaml

from torchbake.jobs.json_schema import hold
from torchbake.jobs.schema_packages import not_installed


def check_compose(text: str) -> str:
    """Hold a file against the schema, and give back whose it is.

    Keys that it does not know count as wrong. Raises JobError, and InstallError without the package.
    """
    return hold(yaml.safe_load(text), _schema(), "the Compose specification")


def _schema() -> dict[str, Any]:
    """An extra, as few want it."""
    try:
        text = (files("check_jsonschema.builtin_schemas") / "vendor/compose-spec.json").read_text(encoding="utf-8")
    except ImportError:
        raise not_installed("The schema of compose files is", "check-jsonschema") from None
    found: dict[str, Any] = json.loads(text)
    return found
