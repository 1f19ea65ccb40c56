"""JobSet: one Indexed Job of all nodes, whose pods JobSet gives host names and a headless Service."""

from typing import Any

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.targets import _jobset, _pod
from torchbake.jobs.targets._job import head, job_spec
from torchbake.jobs.targets.yaml_text import documents
from torchbake.jobs.task import Task, counts, master, variables

NAME = "jobset"
ABOUT = "a JobSet of Kubernetes SIGs, with its ConfigMap and claims"
MOST_NODES = 100_000  # completions of an Indexed Job
CARRIES_FILES = True
CANNOT: tuple[Cannot, ...] = (_jobset.hosts(),)
NEEDS: tuple[Needs, ...] = ()


def render(task: Task) -> str:
    return documents(objects(task), head=head(task))


def objects(task: Task) -> list[dict[str, Any]]:
    """What is applied, in this order."""
    job = task.job
    env = variables(job) | counts(job) | master(job, f"{_jobset.master_host(job)}.{job.name}")
    template = _pod.template(task, env, restartPolicy="Never")
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _pod.metadata(job, job.name),
        "spec": _jobset.jobset_spec(job, job_spec(job, template, indexed=True), {}),
    }
    return [*_pod.surroundings(task), jobset]
