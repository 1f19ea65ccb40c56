"""What each launcher would set in the nodes' containers, given the manifest of a target."""

import itertools
import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import yaml

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


def of_swarm(text: str, task: Task) -> list[Env]:
    """The stack's reader takes $$ for one $, and Swarm fills in its templates, of which one is {{ itself."""
    services = yaml.safe_load(text)["services"].values()
    return [
        {name: value.replace("$$", "$").replace('{{"{{"}}', "{{") for name, value in service["environment"].items()}
        for service in services
    ]


def of_slurm(text: str, task: Task) -> list[Env]:
    """https://slurm.schedmd.com/srun.html, "OUTPUT ENVIRONMENT VARIABLES": besides those, what --export names."""
    options = dict(line[len("#SBATCH --") :].partition("=")[::2] for line in text.splitlines() if "#SBATCH" in line)
    exported = _exported(text)
    srun = shlex.split(text.partition("exec ")[2])
    names = next(word for word in srun if word.startswith("--export=")).partition("=")[2].split(",")
    given = {name: exported[name] for name in names if name in exported}
    assert options["ntasks-per-node"] == "1"
    count = int(options["nodes"].rpartition("-")[2])
    hosts = f"gpu[01-{count:02}]" if count > 1 else "gpu01"
    counted = {f"SLURM_{name}": str(count) for name in ("STEP_NUM_NODES", "NNODES", "JOB_NUM_NODES", "STEP_NUM_TASKS")}
    counted |= {f"SLURM_{name}": hosts for name in ("STEP_NODELIST", "JOB_NODELIST", "NODELIST")}
    counted |= {"SLURM_STEP_TASKS_PER_NODE": f"1(x{count})" if count > 1 else "1", "SLURM_NTASKS_PER_NODE": "1"}
    counted |= {"SLURM_GPUS_ON_NODE": options["gpus-per-node"]} if "gpus-per-node" in options else {}
    counted |= {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}
    return [counted | given | {"SLURM_NODEID": str(node), "SLURM_PROCID": str(node)} for node in range(count)]


def of_torchrun(text: str, task: Task) -> list[Env]:
    """The shell's own part: the script is started on each host with its number and the name of the first."""
    exported = _exported(text)
    return [
        {name: re.sub(r"^\$1$", str(number), re.sub(r"^\$2\b", "gpu01", value)) for name, value in exported.items()}
        for number in range(task.job.most_nodes)
    ]


def _exported(script: str) -> dict[str, str]:
    """What a shell exports."""
    words = shlex.split(script, comments=True)
    return dict(word.split("=", 1) for before, word in itertools.pairwise(words) if before == "export")


LAUNCHERS: dict[str, Callable[[str, Task], list[Env]]] = {
    "docker": of_docker,
    "compose": of_compose,
    "kubernetes": of_kubernetes,
    "pytorchjob": of_pytorchjob,
    "openpai": of_openpai,
    "openpai-v1": of_openpai_v1,
    "swarm": of_swarm,
    "slurm": of_slurm,
    "torchrun": of_torchrun,
}
# Where node 0 is for the others, when it is not the port that the job says: what a launcher decides by itself.
MASTERS = {
    "docker": "mnist-0",
    "compose": "mnist-0",
    "kubernetes": "mnist-0.mnist",
    "pytorchjob": "mnist-master-0",
    "openpai": "10.2.0.5",
    "openpai-v1": "10.2.0.5",
    "swarm": "node-0",
    "slurm": "gpu01",
    "torchrun": "gpu01",
}
ELASTIC_MASTERS = {**MASTERS, "pytorchjob": "mnist-worker-0"}  # its elastic jobs have no Master
PORTS = {"openpai": PAI_PORT, "openpai-v1": PAI_PORT}
