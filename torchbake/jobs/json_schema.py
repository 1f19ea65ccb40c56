"""Manifests against a JSON schema: its library comes with `check-jsonschema`."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from torchbake.core.paths import TOOLKIT
from torchbake.errors import JobError
from torchbake.jobs.schema_packages import not_installed

OF_OPENPAI = {  # by target: the schema, and whose it is
    "openpai": ("openpai.json", "OpenPAI's protocol 2"),
    "openpai-v1": ("openpai-v1.json", "OpenPAI's first protocol"),
}
_SCHEMAS = Path(__file__).parent / "schemas"


def check_openpai(target: str, text: str) -> str:
    """Hold a job of OpenPAI's, by one of OF_OPENPAI, against the schema; gives back whose it is. Raises JobError."""
    name, owner = OF_OPENPAI[target]
    return hold(yaml.safe_load(text), _read(_SCHEMAS / name), owner)


def check_leader_worker_set(manifest: dict[str, Any]) -> str:
    """Hold a LeaderWorkerSet, without its pods, against the schema; gives back whose it is. Raises JobError."""
    return hold(manifest, _read(_SCHEMAS / "leaderworkerset.json"), "LeaderWorkerSet v1")


def check_values(text: str) -> str:
    """Hold values of Helm's against the schema of the chart; gives back whose it is. Raises JobError."""
    schema = _read(TOOLKIT / "charts/pytorch/values.schema.json")
    return hold(yaml.safe_load(text), schema, "the chart pytorch")


def hold(data: Any, schema: dict[str, Any], owner: str) -> str:
    """Hold data against a schema, and give back whose it is. Raises JobError, and InstallError without the package."""
    try:
        library: Any = import_module("jsonschema")
    except ImportError:
        raise not_installed("What reads a schema is", "check-jsonschema") from None
    checker = library.validators.validator_for(schema)(schema)
    error = library.exceptions.best_match(checker.iter_errors(data))
    if error:
        place = ".".join(str(part) for part in error.absolute_path) or "it"
        raise JobError(f"{place}: {owner} does not take this: {error.message}")
    return owner


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
