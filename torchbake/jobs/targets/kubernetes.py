"""Kubernetes: a plain Job; for several nodes an Indexed Job, whose pods find node 0 by a headless Service.

The Service publishes pods that are not ready, since no pod is ready before all nodes have met.
"""

from typing import Any

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.targets import _pod
from torchbake.jobs.targets._job import head, index_of, job_spec
from torchbake.jobs.targets.yaml_text import documents
from torchbake.jobs.task import Task, counts, in_container, master, rank_variables

NAME = "kubernetes"
ABOUT = "a Job, or an Indexed Job with a headless Service, with its ConfigMap and claims"
MOST_NODES = 100_000  # completions of an Indexed Job
CARRIES_FILES = True
CANNOT: tuple[Cannot, ...] = (
    _pod.host_names(
        "NAME-NUMBER", lambda job: f"{job.name}-{job.most_nodes - 1}", service=lambda job: job.most_nodes > 1
    ),
    Cannot(key="gang", why="Kubernetes places each pod by itself; name a queue of Kueue by `queue`, or use pytorchjob"),
)
NEEDS: tuple[Needs, ...] = ()


def render(task: Task) -> str:
    return documents(objects(task), head=head(task))


def objects(task: Task) -> list[dict[str, Any]]:
    job, several = task.job, task.job.most_nodes > 1
    # Kubernetes sets this label on a Job's pods.
    service = [_pod.service(job, {"job-name": job.name})] if several else []
    env = in_container(job) | counts(job) | master(job, f"{job.name}-0.{job.name}")
    env |= rank_variables(job, 0) if job.command and not several else {}
    template = _pod.template(
        task,
        env,
        port_name=_pod.MASTER,
        fields=index_of(job) if several else {},
        restartPolicy="Never",
        subdomain=job.name if several else None,
    )
    spec, metadata = job_spec(job, template, indexed=several), _pod.queue_labels(job, job.name)
    whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    return [*_pod.surroundings(task), *service, whole]
