"""Manifests through the models of the operators' own clients, which read and write them unchanged.

A client drops keys that the operator's API may refuse, and fails without a required key.
"""

import importlib
from typing import Any

import pytest
import yaml

from tests.unit.jobs.cases import ALL_CASES, task_of, text_of
from torchbake.jobs.expressible import OfKubernetes
from torchbake.jobs.targets import TARGETS

client = importlib.import_module("kubernetes.client")
training = importlib.import_module("kubeflow.training.models")
trainer = importlib.import_module("kubeflow_trainer_api.models")


class Models(client.ApiClient):  # type: ignore[misc, name-defined]
    """Reads and writes by both packages' models; it never connects."""

    def read(self, data: Any, model: str) -> Any:
        for name in (name for name in dir(training) if name.startswith("KubeflowOrgV1")):
            if not hasattr(client.models, name):
                setattr(client.models, name, getattr(training, name))
        return self._ApiClient__deserialize(data, model)

    def written(self, data: Any, model: str) -> Any:
        return self.sanitize_for_serialization(self.read(data, model))


def written_by_trainer(data: Any, model: str) -> Any:
    """Through the package of Trainer's API, which has JobSet's too. It drops a key that it does not know."""
    return getattr(trainer, model).from_dict(data).to_dict()


OF_TRAINER = {
    "JobSet": "JobsetV1alpha2JobSet",
    "TrainJob": "TrainerV1alpha1TrainJob",
    "TrainingRuntime": "TrainerV1alpha1TrainingRuntime",
}
MODELS = {
    "Job": "V1Job",
    "Service": "V1Service",
    "ConfigMap": "V1ConfigMap",
    "PersistentVolumeClaim": "V1PersistentVolumeClaim",
    "PyTorchJob": "KubeflowOrgV1PyTorchJob",
}

POD = "V1PodTemplateSpec"


def written(data: Any) -> Any:
    kind = data["kind"]
    if kind == "LeaderWorkerSet":  # no package has its model
        pods = data["spec"]["leaderWorkerTemplate"]
        return data | {
            "spec": data["spec"]
            | {"leaderWorkerTemplate": pods | {"workerTemplate": Models().written(pods["workerTemplate"], POD)}}
        }
    return written_by_trainer(data, OF_TRAINER[kind]) if kind in OF_TRAINER else Models().written(data, MODELS[kind])


def test_a_manifest_is_what_the_client_would_send() -> None:
    for name, target in TARGETS.items():
        for case in ALL_CASES if isinstance(target, OfKubernetes) else ():
            for each in yaml.safe_load_all(target.render(task_of(text_of(case)))):
                assert written(each) == each, (name, case)


def test_what_the_api_requires_is_missed() -> None:
    *_, job = yaml.safe_load_all(TARGETS["pytorchjob"].render(task_of(text_of("ddp"))))
    del job["spec"]["runPolicy"]
    with pytest.raises(ValueError, match="run_policy"):
        Models().read(job, "KubeflowOrgV1PyTorchJob")


@pytest.mark.parametrize(("target", "kind"), [("jobset", "JobSet"), ("trainjob", "TrainingRuntime")])
def test_a_key_that_the_api_does_not_know_is_seen_to_go(target: str, kind: str) -> None:
    (found,) = [
        each for each in yaml.safe_load_all(TARGETS[target].render(task_of(text_of("ddp")))) if each["kind"] == kind
    ]
    found["spec"]["replicas"] = 1
    assert written(found) != found
