"""What a JobSet holds, the user's own or the one that Kubeflow's Trainer makes: an Indexed Job of all nodes. Pure."""

from typing import Any

from torchbake.jobs.expressible import Cannot
from torchbake.jobs.model import Job
from torchbake.jobs.targets import _pod

NODE = "node"  # the one replicated job, and what Trainer calls its container


def hosts() -> Cannot:
    """The names that no pod can have: JobSet adds five letters to the longest before it looks."""
    return _pod.named(f"NAME-{NODE}-0-NUMBER-xxxxx", lambda job: f"{master_host(job)[:-1]}{job.most_nodes - 1}-xxxxx")


def master_host(job: Job) -> str:
    """The host of node 0, within the Service that JobSet makes under the JobSet's name."""
    return f"{job.name}-{NODE}-0-0"


def jobset_spec(job: Job, job_spec: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """Restarts are the Job's: it knows lost nodes from failed scripts, and a Job that failed ends the JobSet."""
    marks = _pod.marks(job)
    template = {"metadata": marks | {"labels": marks["labels"] | labels}, "spec": job_spec}
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [{"name": NODE, "replicas": 1, "template": template}],
    }
