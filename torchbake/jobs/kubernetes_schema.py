"""Checks of Kubernetes' manifests by the schemas and models of packages, without a cluster and without a network.

The package kubernetes-validate has the schemas of Kubernetes' own kinds. The kinds of operators have models of their
APIs: kubeflow-trainer-api for Kubeflow's Trainer and for JobSet, kubeflow-training for PyTorchJob. A LeaderWorkerSet
has a JSON schema in this package, written from its documentation.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version as version_of
from types import SimpleNamespace
from typing import Any

import yaml
from pydantic import ValidationError

from torchbake.errors import JobError
from torchbake.jobs.json_schema import check_leader_worker_set, not_installed

OLDEST = "oldest"  # in place of a version: the oldest one that the package has
_TRAINER, _TRAINING = "kubeflow-trainer-api", "kubeflow-training"
_MODELS = {  # by kind: the package, and the name of the model
    "JobSet": (_TRAINER, "JobsetV1alpha2JobSet"),
    "TrainJob": (_TRAINER, "TrainerV1alpha1TrainJob"),
    "TrainingRuntime": (_TRAINER, "TrainerV1alpha1TrainingRuntime"),
    "PyTorchJob": (_TRAINING, "KubeflowOrgV1PyTorchJob"),
}
_Place = tuple[int | str, ...]


def check_manifest(text: str, version: str = "") -> str:
    """Check each object by its operator's model, or by the schemas of Kubernetes; without ``version`` by the newest.

    An unknown key is an error. Returns the names of the schemas. Raises JobError, and InstallError without a package.
    """
    names = [name for manifest in yaml.safe_load_all(text) for name in _check(manifest, version)]
    return " and ".join(dict.fromkeys(names))


def _check(manifest: dict[str, Any], version: str) -> Iterator[str]:
    if manifest["kind"] in _MODELS:
        yield _check_by_model(manifest)
    elif manifest["kind"] == "LeaderWorkerSet":
        yield check_leader_worker_set(manifest)
        group = manifest["spec"]["leaderWorkerTemplate"]
        for template in (group[key] for key in ("leaderTemplate", "workerTemplate") if key in group):
            name = {"name": manifest["metadata"]["name"], **template.get("metadata", {})}
            yield _check_by_schema({"apiVersion": "v1", "kind": "Pod", **template, "metadata": name}, version)
    else:
        yield _check_by_schema(manifest, version)


def _check_by_schema(manifest: dict[str, Any], version: str) -> str:
    try:
        schemas = import_module("kubernetes_validate")
    except ImportError:
        raise not_installed("Kubernetes' schemas are", "kubernetes-validate") from None
    versions = schemas.utils.all_versions()
    version = {"": versions[-1], OLDEST: versions[0]}.get(version, version)
    name = _name(manifest)
    try:
        schemas.validate(manifest, version, strict=True)
    except schemas.utils.ValidationError as error:
        raise JobError(
            f"{name}: {_path(error.path)}: Kubernetes {version} does not take this: {error.message}"
        ) from None
    except (schemas.utils.SchemaNotFoundError, schemas.utils.VersionNotSupportedError) as error:
        raise JobError(f"{name}: {error.message}.", hint="Leave --check out.") from None
    return f"Kubernetes {version}"


def _check_by_model(manifest: dict[str, Any]) -> str:
    """Check an object by the model of its operator. Models drop unknown keys, so each value must survive the model."""
    name = _name(manifest)
    package, model = _MODELS[manifest["kind"]]
    try:
        if package == _TRAINER:
            text = getattr(import_module("kubeflow_trainer_api.models"), model).from_dict(manifest).to_dict()
        else:  # the client reads the object as if a server had answered it; nothing is connected
            client: Any = import_module("kubeflow.training.api_client").ApiClient()
            answer = client.deserialize(SimpleNamespace(data=json.dumps(manifest)), model)
            text = client.sanitize_for_serialization(answer)
        release = f"{package} {version_of(package)}"
    except ImportError:
        raise not_installed(f"The models of {manifest['kind']} are", package) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise JobError(f"{name}: {_path(first['loc'])}: {package} does not take this: {first['msg']}") from None
    except ValueError as error:
        raise JobError(f"{name}: {package} does not take this: {error}") from None
    known_names = dict(_leaves(text))
    lost = next((place for place, value in _leaves(manifest) if known_names.get(place) != value), None)
    if lost is not None:
        raise JobError(f"{name}: {_path(lost)}: {release} does not know this.")
    return release


def _name(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _path(place: _Place) -> str:
    return ".".join(map(str, place)) or "it"


def _leaves(value: Any, at: _Place = ()) -> Iterator[tuple[_Place, Any]]:
    """Each value without inner values, with its place."""
    inner = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    if not inner:
        yield at, value
    for key, each in inner:
        yield from _leaves(each, (*at, key))
