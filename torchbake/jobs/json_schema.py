"""Checks of manifests by JSON schemas. The library and the Compose schema come with the extra `check-jsonschema`."""

import json
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from torchbake.core.paths import TOOLKIT
from torchbake.errors import InstallError, JobError

OF_OPENPAI = {  # by target: the file of the schema, and its name in messages
    "openpai": ("openpai.json", "OpenPAI's protocol 2"),
    "openpai-v1": ("openpai-v1.json", "OpenPAI's first protocol"),
}
_SCHEMAS = Path(__file__).parent / "schemas"


def check_compose(text: str) -> str:
    """Check a Compose or stack file by the Compose specification; an unknown key is an error.

    Returns the schema's name. Raises JobError, and InstallError without the package.
    """
    try:
        schema = (files("check_jsonschema.builtin_schemas") / "vendor/compose-spec.json").read_text(encoding="utf-8")
    except ImportError:
        raise not_installed("The schema of compose files is", "check-jsonschema") from None
    return _check(yaml.safe_load(text), json.loads(schema), "the Compose specification")


def check_openpai(target: str, text: str) -> str:
    """Check a job of OpenPAI; ``target`` is a key of OF_OPENPAI. Returns the schema's name. Raises JobError."""
    name, owner = OF_OPENPAI[target]
    return _check(yaml.safe_load(text), _read(_SCHEMAS / name), owner)


def check_leader_worker_set(manifest: dict[str, Any]) -> str:
    """Check a LeaderWorkerSet, but not its pods. Returns the schema's name. Raises JobError."""
    return _check(manifest, _read(_SCHEMAS / "leaderworkerset.json"), "LeaderWorkerSet v1")


def check_values(text: str) -> str:
    """Check values of Helm by the schema of the chart. Returns the schema's name. Raises JobError."""
    return _check(yaml.safe_load(text), _read(TOOLKIT / "charts/pytorch/values.schema.json"), "the chart pytorch")


def not_installed(subject: str, package: str) -> InstallError:
    """An error for a missing extra; ``subject`` begins its sentence, as in ``The schemas are``."""
    return InstallError(
        f"{subject} in the package {package}, which is not installed.",
        hint="Run: pip install 'torchbake[jobs]', and then torchbake job show … --check",
    )


def _check(data: Any, schema: dict[str, Any], owner: str) -> str:
    try:
        library: Any = import_module("jsonschema")
    except ImportError:
        raise not_installed("The reader of JSON schemas is", "check-jsonschema") from None
    checker = library.validators.validator_for(schema)(schema)
    error = library.exceptions.best_match(checker.iter_errors(data))
    if error:
        place = ".".join(str(part) for part in error.absolute_path) or "it"
        raise JobError(f"{place}: {owner} does not take this: {error.message}")
    return owner


def _read(path: Path) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema
