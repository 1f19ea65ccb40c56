"""JobSet: one Indexed Job of all nodes, whose pods JobSet gives host names and a headless Service."""

from typing import Any

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.model import Job
from torchbake.jobs.targets import _jobset, _pod
from torchbake.jobs.targets._job import head, index_of, job_spec
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import Task, counts, in_container, master

NAME = "jobset"
ABOUT = "a JobSet of Kubernetes SIGs, with its ConfigMap and claims"
MOST_NODES = 100_000  # completions of an Indexed Job
CARRIES_FILES = True
CANNOT: tuple[Cannot, ...] = (
    _jobset.hosts(),
    Cannot(key="gang", why="a JobSet has no gangs; name a queue of Kueue by `queue`, or use trainjob"),
)
NEEDS: tuple[Needs, ...] = ()


def render(task: Task) -> str:
    return documents(objects(task), head=head(task))


def objects(task: Task) -> list[dict[str, Any]]:
    """What is applied, in this order."""
    job = task.job
    env = in_container(job) | counts(job) | master(job, f"{_jobset.master_host(job)}.{job.name}")
    template = _pod.template(task, env, fields=index_of(job), restartPolicy="Never")
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _pod.queued(job, job.name),
        "spec": _jobset.jobset_spec(job, job_spec(job, template, indexed=True, own=False), {}) | _kept(job),
    }
    return [*_pod.surroundings(task), jobset]


def _kept(job: Job) -> dict[str, Any]:
    """When it starts, by whom, and how long it stays."""
    return without_nothing(
        {
            "ttlSecondsAfterFinished": job.ttl_seconds_after_finished,
            "suspend": job.suspend or None,
            "managedBy": job.managed_by,
        }
    )
