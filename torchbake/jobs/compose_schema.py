"""Compose and stack files against the schema of the Compose specification, which `check-jsonschema` brings along."""

import json
from importlib import import_module
from importlib.resources import files
from typing import Any

import yaml

from torchbake.errors import JobError
from torchbake.jobs.schema_packages import not_installed


def check_compose(text: str) -> str:
    """Hold a file against the schema, and give back whose it is.

    Keys that it does not know count as wrong. Raises JobError, and InstallError without the package.
    """
    schema, library = _schema()
    checker = library.validators.validator_for(schema)(schema)
    error = library.exceptions.best_match(checker.iter_errors(yaml.safe_load(text)))
    if error:
        place = ".".join(str(part) for part in error.absolute_path) or "it"
        raise JobError(f"{place}: the Compose specification does not take this: {error.message}")
    return "The Compose specification"


def _schema() -> tuple[dict[str, Any], Any]:
    """The schema, and the library that reads it: an extra, as few want it."""
    try:
        text = (files("check_jsonschema.builtin_schemas") / "vendor/compose-spec.json").read_text(encoding="utf-8")
        return json.loads(text), import_module("jsonschema")
    except ImportError:
        raise not_installed("The schema of compose files is", "check-jsonschema") from None
