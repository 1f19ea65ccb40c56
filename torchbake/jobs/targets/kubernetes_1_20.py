"""Kubernetes before Indexed Jobs (1.22) and pod failure policies (1.26): a Job with a host name for each node.

Every key exists in Kubernetes 1.20. Such a Job cannot tell a lost node from a failed script, so no pod is restarted.
The job's exit code is that of the Job of node 0.
"""

from typing import Any

from torchbake.jobs.expressible import Cannot, Needs, restarts_unless_elastic
from torchbake.jobs.targets import _pod
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import Task, counts, in_container, master, node_name, rank_variables

NAME = "kubernetes-1.20"
ABOUT = "a Job for each node and a headless Service, for clusters before 1.26, with its ConfigMap and claims"
MOST_NODES = 1000  # the Endpoints of a Service
CARRIES_FILES = True
CANNOT: tuple[Cannot, ...] = (
    _pod.host_names(
        "NAME-NUMBER", lambda job: node_name(job, job.most_nodes - 1), service=lambda job: job.most_nodes > 1
    ),
    restarts_unless_elastic(
        "a Job cannot tell a lost node from a failed script before Kubernetes 1.26; use kubernetes, or make the "
        "job elastic"
    ),
    *_pod.without(
        *("ttlSecondsAfterFinished", "suspend", "managedBy", "queue", "gang"),
        why="Jobs of Kubernetes 1.20 do not have it; use kubernetes, or another cluster's operator",
    ),
)
NEEDS: tuple[Needs, ...] = ()


def render(task: Task) -> str:
    return documents(objects(task), head=_pod.security(task))


def objects(task: Task) -> list[dict[str, Any]]:
    job = task.job
    own = "app.kubernetes.io/name"
    service = [_pod.service(job, {own: _pod.marks(job)["labels"][own]})] if job.most_nodes > 1 else []
    return [*_pod.surroundings(task), *service, *(_job(task, rank) for rank in range(job.most_nodes))]


def _job(task: Task, rank: int) -> dict[str, Any]:
    job = task.job
    name = node_name(job, rank)
    env = in_container(job) | counts(job) | rank_variables(job, rank) | master(job, f"{node_name(job, 0)}.{job.name}")
    hosts: dict[str, Any] = {"hostname": name, "subdomain": job.name} if job.most_nodes > 1 else {}
    spec = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": job.timeouts.job,
        "template": _pod.template(task, env, port_name=_pod.MASTER, restartPolicy="Never", **hosts),
    }
    metadata = _pod.metadata(job, name)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": without_nothing(spec)}
