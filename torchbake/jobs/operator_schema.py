"""Objects of Kubeflow's Trainer and of JobSet against the models of their API: no cluster, no network.

The package kubeflow-trainer-api has both. It drops what it does not know, so what comes back must be what went in.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from torchbake.errors import JobError
from torchbake.jobs.schema_packages import not_installed

Place = tuple[int | str, ...]
_MODELS = {
    "JobSet": "JobsetV1alpha2JobSet",
    "TrainJob": "TrainerV1alpha1TrainJob",
    "TrainingRuntime": "TrainerV1alpha1TrainingRuntime",
}


def has_model(manifest: dict[str, Any]) -> bool:
    return manifest["kind"] in _MODELS


def check_object(manifest: dict[str, Any]) -> str:
    """Hold one object against its model, and give back which package has it. Raises JobError, and InstallError."""
    what = f"{manifest['kind']} {manifest['metadata']['name']}"
    try:
        package = import_module("kubeflow_trainer_api")
        model: Any = getattr(import_module("kubeflow_trainer_api.models"), _MODELS[manifest["kind"]])
    except ImportError:
        raise not_installed(f"The models of {manifest['kind']} are", "kubeflow-trainer-api") from None
    name = f"kubeflow-trainer-api {package.__version__}"
    try:
        taken = dict(_leaves(model.from_dict(manifest).to_dict()))
    except ValidationError as error:
        first = error.errors()[0]
        raise JobError(f"{what}: {_path(first['loc'])}: {name} does not take this: {first['msg']}") from None
    lost = next((place for place, value in _leaves(manifest) if taken.get(place) != value), None)
    if lost is not None:
        raise JobError(f"{what}: {_path(lost)}: {name} does not know this.")
    return name


def _path(place: Place) -> str:
    return ".".join(map(str, place)) or "it"


def _leaves(value: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value that has none within, with its place."""
    inner = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    if not inner:
        yield at, value
    for key, each in inner:
        yield from _leaves(each, (*at, key))
