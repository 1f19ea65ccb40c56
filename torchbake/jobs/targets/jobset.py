"""JobSet: one Indexed Job of all nodes, whose pods get host names and a headless Service from JobSet."""

from typing import Any

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.model import Job
from torchbake.jobs.targets import _pod
from torchbake.jobs.targets._job import head, index_of, job_spec
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import Task, counts, in_container, master

NAME = "jobset"
ABOUT = "a JobSet of Kubernetes SIGs, with its ConfigMap and claims"
MOST_NODES = 100_000  # completions of an Indexed Job
CARRIES_FILES = True
NODE = "node"  # the only replicated job, and Trainer's name of its container


def master_host(job: Job) -> str:
    """Return the host of node 0 in the Service that JobSet creates under the JobSet's name."""
    return f"{job.name}-{NODE}-0-0"


# JobSet adds five letters to the longest host name before it checks the length.
HOSTS = _pod.host_names(f"NAME-{NODE}-0-NUMBER-xxxxx", lambda job: f"{master_host(job)[:-1]}{job.most_nodes - 1}-xxxxx")
CANNOT: tuple[Cannot, ...] = (
    HOSTS,
    Cannot(key="gang", why="a JobSet has no gangs; name a queue of Kueue by `queue`, or use trainjob"),
)
NEEDS: tuple[Needs, ...] = ()


def render(task: Task) -> str:
    return documents(objects(task), head=head(task))


def objects(task: Task) -> list[dict[str, Any]]:
    job = task.job
    env = in_container(job) | counts(job) | master(job, f"{master_host(job)}.{job.name}")
    template = _pod.template(task, env, fields=index_of(job), restartPolicy="Never")
    lifecycle = {
        "ttlSecondsAfterFinished": job.ttl_seconds_after_finished,
        "suspend": job.suspend or None,
        "managedBy": job.managed_by,
    }
    spec = jobset_spec(job, job_spec(job, template, indexed=True, own=False), {}) | without_nothing(lifecycle)
    metadata = _pod.queue_labels(job, job.name)
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}
    return [*_pod.surroundings(task), jobset]


def jobset_spec(job: Job, job_spec: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """Return the spec of a JobSet without restarts, since its Job can tell a lost node from a failed script."""
    marks = _pod.marks(job)
    template = {"metadata": marks | {"labels": marks["labels"] | labels}, "spec": job_spec}
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [{"name": NODE, "replicas": 1, "template": template}],
    }
