"""What each launcher would set in the nodes' containers, given the manifest of a target."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import helm_python
import yaml

from tests.unit.charts.helm import objects
from torchbake.jobs.task import Task

Env = Mapping[str, str]
PAI_PORT = 20302  # the one that OpenPAI reserved for the job's own label


def of_docker(text: str, task: Task) -> list[Env]:
    """`docker run --env`, in the order of nodes: the script starts node 0 last."""
    envs = list[Env]()
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if "--name" not in words:
            continue
        given = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
        envs.append(dict(word.split("=", 1) for word in given if "=" in word))
    return envs[::-1]


def of_compose(text: str, task: Task) -> list[Env]:
    """compose fills in what `$` begins; `$$` is one."""
    services = yaml.safe_load(text)["services"]
    plain = {name: node["environment"] for name, node in services.items() if "environment" in node}
    return [
        {name: re.sub(r"\$\{(\w+):\?[^}]*\}", r"value of \1", value).replace("$$", "$") for name, value in env.items()}
        for env in plain.values()
    ]


def of_kubernetes(text: str, task: Task) -> list[Env]:
    """An Indexed Job's pods have their index besides; a pod that is alone has not."""
    job = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Job")["spec"]
    env = _of_pod(job["template"])
    if job.get("completionMode") != "Indexed":
        return [env]
    assert job["completions"] == job["parallelism"]
    name = task.job.name
    return [
        env | {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{name}-{index}"} for index in range(job["completions"])
    ]


def of_helm(text: str, task: Task) -> list[Env]:
    """What the chart makes of these values is Kubernetes'."""
    return of_kubernetes(yaml.safe_dump_all(objects(helm_python.values_from_yaml(text)).values()), task)


def of_pytorchjob(text: str, task: Task) -> list[Env]:
    """kubeflow/training-operator (release 1.9): pkg/controller.v1/pytorch/envvar.go, master.go and elastic.go."""
    job = next(each for each in yaml.safe_load_all(text) if each["kind"] == "PyTorchJob")
    name, spec = job["metadata"]["name"], job["spec"]
    replicas = spec["pytorchReplicaSpecs"]
    master, worker = replicas.get("Master"), replicas.get("Worker", {"replicas": 0})
    if master is None:
        policy = spec["elasticPolicy"]
        elastic = {
            "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}",
            "PET_RDZV_ENDPOINT": f"{name}-worker-0:{_port(worker['template'])}",
            "PET_RDZV_BACKEND": policy["rdzvBackend"],
            "PET_MAX_RESTARTS": str(policy["maxRestarts"]),
        }
        return [_of_pod(worker["template"]) | elastic for _ in range(worker["replicas"])]
    count, processes = 1 + worker["replicas"], spec["nprocPerNode"]
    common = {
        "WORLD_SIZE": str(count * int(processes if processes.isdigit() else "1")),
        "MASTER_ADDR": f"{name}-master-0",
        "MASTER_PORT": str(_port(master["template"])),
        "PET_NNODES": str(count),
        "PET_NPROC_PER_NODE": processes,
    }
    pods = [_of_pod(master["template"]), *(_of_pod(worker["template"]) for _ in range(worker["replicas"]))]
    return [pod | common | {"RANK": str(rank), "PET_NODE_RANK": str(rank)} for rank, pod in enumerate(pods)]


def _port(template: Mapping[str, Any]) -> int:
    """The operator's own where the job names none."""
    (container,) = template["spec"]["containers"]
    assert container["name"] == "pytorch"
    ports = [port["containerPort"] for port in container.get("ports", ()) if port["name"] == "pytorchjob-port"]
    return int(ports[0]) if ports else 23456


def of_openpai(text: str, task: Task) -> list[Env]:
    ((role, found),) = yaml.safe_load(text)["taskRoles"].items()
    ports = found["resourcePerInstance"].get("ports", {})
    return _of_tasks(role, found["instances"], list(ports), found["commands"])


def of_openpai_v1(text: str, task: Task) -> list[Env]:
    (role,) = json.loads(text)["taskRoles"]
    labels = [port["label"] for port in role.get("portList", ())]
    return _of_tasks(role["name"], role["taskNumber"], labels, role["command"].split(" && "))


def _of_tasks(role: str, count: int, labels: list[str], commands: list[str]) -> list[Env]:
    """microsoft/pai: src/rest-server/src/models/v2/job/runtime-env.js; what the command exports comes after it."""
    words = [shlex.split(line) for line in commands]
    exported = dict(each[1].split("=", 1) for each in words if each[0] == "export")
    common = {"PAI_TASK_ROLE_LIST": role, f"PAI_TASK_ROLE_TASK_COUNT_{role}": str(count)}
    for place, label in enumerate(("ssh", "http", *labels)):
        common[f"PAI_PORT_LIST_{role}_0_{label}"] = str(PAI_PORT - 2 + place)
    common[f"PAI_HOST_IP_{role}_0"] = "10.2.0.5"
    return [
        common | {"PAI_CURRENT_TASK_ROLE_NAME": role, "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(index)} | exported
        for index in range(count)
    ]


def _of_pod(template: Mapping[str, Any]) -> dict[str, str]:
    """Kubernetes takes $$ for one $."""
    (container,) = template["spec"]["containers"]
    return {each["name"]: each["value"].replace("$$", "$") for each in container["env"] if "value" in each}


LAUNCHERS: dict[str, Callable[[str, Task], list[Env]]] = {
    "docker": of_docker,
    "compose": of_compose,
    "kubernetes": of_kubernetes,
    "helm": of_helm,
    "pytorchjob": of_pytorchjob,
    "openpai": of_openpai,
    "openpai-v1": of_openpai_v1,
}
# Where node 0 is for the others, when it is not the port that the job says: what a launcher decides by itself.
MASTERS = {
    "docker": "mnist-0",
    "compose": "mnist-0",
    "kubernetes": "mnist-0.mnist",
    "helm": "mnist-0.mnist",
    "pytorchjob": "mnist-master-0",
    "openpai": "10.2.0.5",
    "openpai-v1": "10.2.0.5",
}
ELASTIC_MASTERS = {**MASTERS, "pytorchjob": "mnist-worker-0"}  # its elastic jobs have no Master
PORTS = {"openpai": PAI_PORT, "openpai-v1": PAI_PORT}
