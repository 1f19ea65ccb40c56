"""Properties of a PyTorchJob besides its contract."""

from typing import Any

import pytest
import yaml

from tests.unit.jobs.cases import LEAST, job_of, printed_job, task_of, text_of
from torchbake.jobs.expressible import unsupported_keys
from torchbake.jobs.targets import pytorchjob
from torchbake.jobs.task import Task

# Variables of the launcher, which a manifest must not set too.
OPERATORS = {"NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "ELASTIC", "PET_MAX_RESTARTS"}


def spec(text: str) -> Any:
    *_, job = yaml.safe_load_all(pytorchjob.render(task_of(text)))
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    return job["spec"]


@pytest.mark.parametrize(
    ("case", "replicas"),
    [("standalone", {"Master": 1}), ("ddp", {"Master": 1, "Worker": 3}), ("elastic", {"Worker": 3})],
)
def test_a_master_and_the_rest_are_workers(case: str, replicas: dict[str, int]) -> None:
    value = spec(text_of(case))["pytorchReplicaSpecs"]
    assert {role: each["replicas"] for role, each in value.items()} == replicas
    assert {each["restartPolicy"] for each in value.values()} == {"Never"}


def test_processes_are_a_text_as_the_operators_api_has_them() -> None:
    assert spec(text_of("ddp"))["nprocPerNode"] == "2"
    assert spec(text_of("auto"))["nprocPerNode"] == "auto"
    assert spec(text_of("standalone"))["nprocPerNode"] == "1"


@pytest.mark.parametrize("case", ["ddp", "elastic", "everything"])
def test_variables_of_the_operator_are_not_written(case: str) -> None:
    for replica in spec(text_of(case))["pytorchReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        assert OPERATORS.isdisjoint(each["name"] for each in container["env"])
        assert container["name"] == "pytorch"


@pytest.mark.parametrize("case", ["standalone", "everything"])
def test_what_the_operators_api_requires_is_there(case: str) -> None:
    value = spec(text_of(case))
    assert value["pytorchReplicaSpecs"]
    assert value["runPolicy"]["cleanPodPolicy"] == "Running"


def test_restarts_are_an_elastic_jobs_alone() -> None:
    assert spec(LEAST + "elastic: 1:2\nrestarts: 7")["elasticPolicy"]["maxRestarts"] == 7
    assert unsupported_keys(job_of(LEAST + "elastic: 1:2\nrestarts: 7"), pytorchjob) == []
    (problem,) = unsupported_keys(job_of(LEAST + "nodes: 2\nrestarts: 7"), pytorchjob)
    assert problem[0] == ("restarts",)


def test_a_name_too_long_for_a_workers_host_is_refused() -> None:
    assert not unsupported_keys(job_of(LEAST.replace("mnist", "m" * 54)), pytorchjob)
    assert unsupported_keys(job_of(LEAST.replace("mnist", "m" * 55)), pytorchjob)


# The example of PyTorchJob's page.
PAGE = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: pytorch-training
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
            - name: pytorch
              image: pytorch/pytorch:2.2.0-cuda12.1-cudnn8-runtime
              resources:
                limits:
                  nvidia.com/gpu: 1
    Worker:
      replicas: 3
      template:
        spec:
          containers:
            - name: pytorch
              image: pytorch/pytorch:2.2.0-cuda12.1-cudnn8-runtime
              resources:
                limits:
                  nvidia.com/gpu: 1
"""
OURS = printed_job("pytorch-training")  # as docs/how-to/jobs.md has it


def covers(item: Any, expected: Any) -> bool:
    """Compare a manifest with one that has fewer fields. Kubernetes takes an amount as a number and as a text."""
    if isinstance(expected, dict):
        return all(key in item and covers(item[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(item) == len(expected) and all(map(covers, item, expected))
    return str(item) == str(expected)


def test_the_example_of_its_page_is_written_field_by_field() -> None:
    job = job_of(OURS)
    assert unsupported_keys(job, pytorchjob) == []
    (items,) = pytorchjob.objects(Task(job=job, image=job.image, ours=False))
    assert covers(items, yaml.safe_load(PAGE))
    assert not covers(items, yaml.safe_load(PAGE.replace("replicas: 3", "replicas: 2")))
    for replica in items["spec"]["pytorchReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        assert replica["restartPolicy"] == "Never"
        assert container["args"] == ["sh", "-c", "torchrun train.py"]
        assert not {"command", "readinessProbe", "env"} & set(container)
        assert container["securityContext"] == {"allowPrivilegeEscalation": False}
        assert "health" not in str(replica)
        assert not {"runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup"} & set(str(replica).replace("'", " ").split())


def test_a_gang_is_all_nodes_or_the_least_of_an_elastic_job() -> None:
    for more, least in (("nodes: 3", 3), ("elastic: 2:4", 2)):
        text = LEAST + f"{more}\npriority: high\ngang: {{queue: vision, scheduleTimeoutSeconds: 60}}\n"
        assert spec(text)["runPolicy"]["schedulingPolicy"] == {
            "minAvailable": least, "queue": "vision", "scheduleTimeoutSeconds": 60, "priorityClass": "high",
        }  # fmt: skip
    assert "schedulingPolicy" not in spec(LEAST)["runPolicy"]
