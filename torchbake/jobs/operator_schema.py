"""Objects of operators against the models of their APIs: no cluster, no network.

The package kubeflow-trainer-api has those of Kubeflow's Trainer and of JobSet, kubeflow-training that of PyTorchJob.
Both drop what they do not know, so what comes back must be what went in.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from torchbake.errors import JobError
from torchbake.jobs.schema_packages import not_installed

Place = tuple[int | str, ...]
_TRAINER, _TRAINING = "kubeflow-trainer-api", "kubeflow-training"
# By kind: the package, and its model.
_MODELS = {
    "JobSet": (_TRAINER, "JobsetV1alpha2JobSet"),
    "TrainJob": (_TRAINER, "TrainerV1alpha1TrainJob"),
    "TrainingRuntime": (_TRAINER, "TrainerV1alpha1TrainingRuntime"),
    "PyTorchJob": (_TRAINING, "KubeflowOrgV1PyTorchJob"),
}


def has_model(manifest: dict[str, Any]) -> bool:
    return manifest["kind"] in _MODELS


def check_object(manifest: dict[str, Any]) -> str:
    """Hold one object against its model, and give back which package has it. Raises JobError, and InstallError."""
    what = f"{manifest['kind']} {manifest['metadata']['name']}"
    package, model = _MODELS[manifest["kind"]]
    try:
        written = (_by_trainer if package == _TRAINER else _by_training)(manifest, model)
        name = f"{package} {version(package)}"
    except ImportError:
        raise not_installed(f"The models of {manifest['kind']} are", package) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise JobError(f"{what}: {_path(first['loc'])}: {package} does not take this: {first['msg']}") from None
    except ValueError as error:
        raise JobError(f"{what}: {package} does not take this: {error}") from None
    taken = dict(_leaves(written))
    lost = next((place for place, value in _leaves(manifest) if taken.get(place) != value), None)
    if lost is not None:
        raise JobError(f"{what}: {_path(lost)}: {name} does not know this.")
    return name


def _by_trainer(manifest: dict[str, Any], model: str) -> Any:
    """As its model reads and writes it."""
    return getattr(import_module("kubeflow_trainer_api.models"), model).from_dict(manifest).to_dict()


def _by_training(manifest: dict[str, Any], model: str) -> Any:
    """As its client reads and would send it; it reads what a server has answered, and connects to none."""
    client: Any = import_module("kubeflow.training.api_client").ApiClient()
    return client.sanitize_for_serialization(client.deserialize(SimpleNamespace(data=json.dumps(manifest)), model))


def _path(place: Place) -> str:
    return ".".join(map(str, place)) or "it"


def _leaves(value: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value that has none within, with its place."""
    inner = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    if not inner:
        yield at, value
    for key, each in inner:
        yield from _leaves(each, (*at, key))
