"""Models of the launchers: the variables of each node's container, from the manifest of a target."""

import itertools
import json
import re
import shlex
from collections.abc import Callable, Mapping
from string import Template
from typing import Any

import helm_python
import yaml

from tests.unit.charts.helm import objects
from torchbake.jobs.task import Task

Env = Mapping[str, str]
PAI_PORT = 20302  # reserved by OpenPAI for the job's own label


def of_docker(text: str, task: Task) -> list[Env]:
    """Read the options `--env`, in the order of nodes: the script starts node 0 last."""
    envs = list[Env]()
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if "--name" not in words:
            continue
        arguments = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
        envs.append(dict(word.split("=", 1) for word in arguments if "=" in word))
    return envs[::-1]


def of_compose(text: str, task: Task) -> list[Env]:
    """compose expands variables after `$`, and reads `$$` as `$`."""
    services = yaml.safe_load(text)["services"]
    plain = {name: node["environment"] for name, node in services.items() if "environment" in node}
    return [
        {name: re.sub(r"\$\{(\w+):\?[^}]*\}", r"value of \1", value).replace("$$", "$") for name, value in env.items()}
        for env in plain.values()
    ]


def of_kubernetes(text: str, task: Task) -> list[Env]:
    """The pods of an Indexed Job also have their index; the only pod of another Job has none."""
    job = _object(text, "Job")
    if job["spec"].get("completionMode") != "Indexed":
        return [_of_pod(job["spec"]["template"])]
    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    return _of_indexed_job(job["metadata"]["name"], job["spec"]["template"], job["spec"]["completions"])


def _of_indexed_job(name: str, template: Mapping[str, Any], count: int) -> list[Env]:
    number = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        _of_pod(template, {number: str(index)}) | {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{name}-{index}"}
        for index in range(count)
    ]


def of_kubernetes_1_20(text: str, task: Task) -> list[Env]:
    """Each Job has one pod, with the host name of its template."""
    jobs = [each for each in yaml.safe_load_all(text) if each["kind"] == "Job"]
    templates = [job["spec"]["template"] for job in jobs]
    hosts = [template["spec"].get("hostname", "any") for template in templates]
    return [_of_pod(template) | {"HOSTNAME": host} for template, host in zip(templates, hosts, strict=True)]


def of_jobset(text: str, task: Task) -> list[Env]:
    """kubernetes-sigs/jobset: pkg/controllers/jobset_controller.go (constructJob), pkg/util/placement. No variables."""
    jobset = _object(text, "JobSet")
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert job["completionMode"] == "Indexed"
    assert job["completions"] == job["parallelism"]
    name = f"{jobset['metadata']['name']}-{replicated['name']}-0"
    return _of_indexed_job(name, job["template"], job["completions"])


def of_trainjob(text: str, task: Task) -> list[Env]:
    """kubeflow/trainer (2.0 to 2.3): pkg/runtime/framework/plugins/torch/torch.go, pkg/constants/constants.go."""
    job = _object(text, "TrainJob")
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    if job["spec"]["runtimeRef"]["kind"] == "ClusterTrainingRuntime":  # whose container is `node`, and has no variables
        return _of_trainer(name, trainer, {"spec": {"containers": [trainer]}})
    runtime = _object(text, "TrainingRuntime")
    assert job["spec"]["runtimeRef"] == {"kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    assert "torch" in runtime["spec"]["mlPolicy"]
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    labels = replicated["template"]["metadata"]["labels"]
    assert labels["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    template = replicated["template"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["name"] == replicated["name"] == "node"
    return _of_trainer(name, trainer, template)


def _of_trainer(name: str, trainer: Mapping[str, Any], template: Mapping[str, Any]) -> list[Env]:
    common = {
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
        "PET_MASTER_PORT": "29500",
    }
    envs = _of_indexed_job(f"{name}-node-0", template, trainer["numNodes"])
    return [{**env, **common, "PET_NODE_RANK": env["JOB_COMPLETION_INDEX"]} for env in envs]


def of_leaderworkerset(text: str, task: Task) -> list[Env]:
    """kubernetes-sigs/lws: pkg/utils/pod/pod_utils.go, whose variables come before the container's own."""
    actual = _object(text, "LeaderWorkerSet")
    name, group = actual["metadata"]["name"], actual["spec"]["leaderWorkerTemplate"]
    set_by_it = {"LWS_LEADER_ADDRESS": f"{name}-0.{name}.team", "LWS_GROUP_SIZE": str(group["size"])}
    number = "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']"
    assert "leaderTemplate" not in group
    envs = [_of_pod(group["workerTemplate"], {number: str(index)}) for index in range(group["size"])]
    return [
        set_by_it
        | {key: re.sub(r"\$\((\w+)\)", lambda match: set_by_it[match[1]], value) for key, value in env.items()}
        for env in envs
    ]


def _object(text: str, kind: str) -> Any:
    (value,) = [each for each in yaml.safe_load_all(text) if each["kind"] == kind]
    return value


def of_helm(text: str, task: Task) -> list[Env]:
    """The chart turns values into objects of Kubernetes."""
    return of_kubernetes(
        yaml.dump_all(objects(helm_python.values_from_yaml(text)).values(), Dumper=yaml.CSafeDumper), task
    )


def of_pytorchjob(text: str, task: Task) -> list[Env]:
    """kubeflow/training-operator (release 1.9): pkg/controller.v1/pytorch/envvar.go, master.go and elastic.go."""
    job = _object(text, "PyTorchJob")
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
    """Return the job's port, or the default of the operator."""
    (container,) = template["spec"]["containers"]
    assert container["name"] == "pytorch"
    ports = [port["containerPort"] for port in container.get("ports", ()) if port["name"] == "pytorchjob-port"]
    return int(ports[0]) if ports else 23456


def of_openpai(text: str, task: Task) -> list[Env]:
    ((role, value),) = yaml.safe_load(text)["taskRoles"].items()
    ports = value["resourcePerInstance"].get("ports", {})
    return _of_tasks(role, value["instances"], list(ports), value["commands"])


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
    tasks = [
        common | {"PAI_CURRENT_TASK_ROLE_NAME": role, "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(index)}
        for index in range(count)
    ]
    return [task | {name: Template(value).safe_substitute(task) for name, value in exported.items()} for task in tasks]


def _of_pod(template: Mapping[str, Any], fields: Mapping[str, str] | None = None) -> dict[str, str]:
    """Kubernetes reads $$ as $, and fills in fields of the pod."""
    (container,) = template["spec"]["containers"]
    plain = {each["name"]: each["value"].replace("$$", "$") for each in container["env"] if "value" in each}
    matches = {each["name"]: each["valueFrom"] for each in container["env"] if "valueFrom" in each}
    paths = {name: source["fieldRef"]["fieldPath"] for name, source in matches.items() if "fieldRef" in source}
    return plain | {name: (fields or {})[path] for name, path in paths.items()}


def of_swarm(text: str, task: Task) -> list[Env]:
    """The reader of stacks reads $$ as $, and Swarm expands templates, by one of which {{ is written."""
    services = yaml.safe_load(text)["services"].values()
    return [
        {name: value.replace("$$", "$").replace('{{"{{"}}', "{{") for name, value in service["environment"].items()}
        for service in services
    ]


def of_slurm(text: str, task: Task) -> list[Env]:
    """https://slurm.schedmd.com/srun.html, "OUTPUT ENVIRONMENT VARIABLES", and the variables of --export."""
    options = dict(line[len("#SBATCH --") :].partition("=")[::2] for line in text.splitlines() if "#SBATCH" in line)
    exported = _exported(text)
    names = next(word for word in srun_of(text) if word.startswith("--export=")).partition("=")[2].split(",")
    arguments = {name: exported[name].replace("$first", "gpu01") for name in names if name in exported}
    ranked = re.findall(r'export (\w+)="\$SLURM_NODEID"', " ".join(srun_of(text)))
    assert options["ntasks-per-node"] == "1"
    count = int(options["nodes"].rpartition("-")[2])
    hosts = f"gpu[01-{count:02}]" if count > 1 else "gpu01"
    counted = {f"SLURM_{name}": str(count) for name in ("STEP_NUM_NODES", "NNODES", "JOB_NUM_NODES", "STEP_NUM_TASKS")}
    counted |= {f"SLURM_{name}": hosts for name in ("STEP_NODELIST", "JOB_NODELIST", "NODELIST")}
    counted |= {"SLURM_STEP_TASKS_PER_NODE": f"1(x{count})" if count > 1 else "1", "SLURM_NTASKS_PER_NODE": "1"}
    counted |= {"SLURM_GPUS_ON_NODE": options["gpus-per-node"]} if "gpus-per-node" in options else {}
    counted |= {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}
    return [
        counted | arguments | {name: str(node) for name in ("SLURM_NODEID", "SLURM_PROCID", *ranked)}
        for node in range(count)
    ]


def srun_of(text: str) -> list[str]:
    """Return the words of the srun command of a script for sbatch, as the shell splits them."""
    words = shlex.split(text, comments=True)
    return list(itertools.takewhile(lambda word: word != "||", words[words.index("srun") :]))


def of_torchrun(text: str, task: Task) -> list[Env]:
    """The user starts the script on each host with the host's number and the name of the first host."""
    exported = _exported(text)
    return [
        {name: re.sub(r"^\$1$", str(number), re.sub(r"^\$2\b", "gpu01", value)) for name, value in exported.items()}
        for number in range(task.job.most_nodes)
    ]


def _exported(script: str) -> dict[str, str]:
    """Return the exported variables of a script."""
    words = shlex.split(script, comments=True)
    return dict(word.split("=", 1) for before, word in itertools.pairwise(words) if before == "export")


LAUNCHERS: dict[str, Callable[[str, Task], list[Env]]] = {
    "docker": of_docker,
    "compose": of_compose,
    "kubernetes": of_kubernetes,
    "kubernetes-1.20": of_kubernetes_1_20,
    "jobset": of_jobset,
    "helm": of_helm,
    "leaderworkerset": of_leaderworkerset,
    "pytorchjob": of_pytorchjob,
    "trainjob": of_trainjob,
    "openpai": of_openpai,
    "openpai-v1": of_openpai_v1,
    "swarm": of_swarm,
    "slurm": of_slurm,
    "torchrun": of_torchrun,
}
# The address of node 0 under each launcher.
MASTERS = {
    "docker": "mnist-0",
    "compose": "mnist-0",
    "kubernetes": "mnist-0.mnist",
    "kubernetes-1.20": "mnist-0.mnist",
    "jobset": "mnist-node-0-0.mnist",
    "helm": "mnist-0.mnist",
    "leaderworkerset": "mnist-0.mnist.team",
    "pytorchjob": "mnist-master-0",
    "trainjob": "mnist-node-0-0.mnist",
    "openpai": "10.2.0.5",
    "openpai-v1": "10.2.0.5",
    "swarm": "node-0",
    "slurm": "gpu01",
    "torchrun": "gpu01",
}
ELASTIC_MASTERS = {**MASTERS, "pytorchjob": "mnist-worker-0"}  # its elastic jobs have no Master
PORTS = {"openpai": PAI_PORT, "openpai-v1": PAI_PORT, "trainjob": 29500}
