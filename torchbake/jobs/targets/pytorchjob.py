"""Kubeflow's PyTorchJob (training operator v1): a Master and its Workers; an elastic job has only Workers.

The operator sets the numbers of nodes and processes, RANK and MASTER_ADDR itself. Without a Master it does not set the
number of processes, so an elastic job sets it by the variable of `run`.
"""

from typing import Any

from torchbake.jobs import model
from torchbake.jobs.expressible import Cannot, Needs, restarts_unless_elastic
from torchbake.jobs.model import Job
from torchbake.jobs.targets import _pod
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import Task, in_container, read_by

NAME = "pytorchjob"
ABOUT = "a PyTorchJob of Kubeflow's training operator, with its ConfigMap and claims"
MOST_NODES = model.MOST_NODES
CARRIES_FILES = True
CANNOT: tuple[Cannot, ...] = (
    _pod.host_names("NAME-worker-NUMBER", lambda job: f"{job.name}-worker-{job.most_nodes}"),
    restarts_unless_elastic(
        "the operator cannot tell a lost node from a failed script; use kubernetes, or make the job elastic"
    ),
    _pod.managers("kubeflow.org/training-operator"),
    Cannot(key="gang.scheduler", why="the operator is started for one of them (--gang-scheduler-name): leave it out"),
)
NEEDS: tuple[Needs, ...] = ()
_INIT = (
    '\nThe operator adds a container of its own to each Worker, init-pytorch, which "restricted" would '
    "refuse:\ngive that one a securityContext by the operator's --pytorch-init-container-template-file."
)
_PORT = "pytorchjob-port"  # the operator makes MASTER_PORT of the port of this name


def render(task: Task) -> str:
    job = task.job
    return documents(objects(task), head=_pod.security(task) + ("" if job.elastic or job.nodes == 1 else _INIT))


def objects(task: Task) -> list[dict[str, Any]]:
    job = task.job
    workers = job.most_nodes if job.elastic else job.most_nodes - 1
    replicas = {} if job.elastic else {"Master": _replicas(task, 1)}
    elastic: dict[str, Any] = {}
    if job.elastic:
        least, most = (int(number) for number in job.elastic.split(":"))
        elastic = {"minReplicas": least, "maxReplicas": most, "maxRestarts": job.restarts, "rdzvBackend": "c10d"}
    spec = {
        "nprocPerNode": job.per_node,  # a text, since the operator knows auto too
        "elasticPolicy": elastic,
        "runPolicy": _policy(job),  # which the operator requires
        "pytorchReplicaSpecs": replicas | ({"Worker": _replicas(task, workers)} if workers else {}),
    }
    metadata = _pod.queue_labels(job, job.name)
    api = "kubeflow.org/v1"
    return [
        *_pod.surroundings(task),
        {"apiVersion": api, "kind": "PyTorchJob", "metadata": metadata, "spec": without_nothing(spec)},
    ]


def _policy(job: Job) -> dict[str, Any]:
    gang: dict[str, Any] = {}
    if job.gang:  # for the scheduler of the operator, which ignores this if it was started without one
        gang = {
            "minAvailable": int(job.elastic.partition(":")[0]) if job.elastic else job.nodes,
            "queue": job.gang.queue,
            "scheduleTimeoutSeconds": job.gang.schedule_timeout_seconds,
            "priorityClass": job.priority,
        }
    policy = {
        "cleanPodPolicy": "Running",  # pods that have ended stay, for their logs
        "activeDeadlineSeconds": job.timeouts.job,
        "ttlSecondsAfterFinished": job.ttl_seconds_after_finished,
        "suspend": job.suspend or None,
        "managedBy": job.managed_by,
        "schedulingPolicy": without_nothing(gang),
    }
    return without_nothing(policy)


def _replicas(task: Task, count: int) -> dict[str, Any]:
    """Return a replica group without restarts by the kubelet, which would restart one node alone."""
    job = task.job
    env = in_container(job) | (read_by(job, {"NPROC_PER_NODE": job.per_node}) if job.elastic else {})
    template = _pod.template(task, env, port_name=_PORT)
    return {"replicas": count, "restartPolicy": "Never", "template": template}
