"""Kubernetes: a plain Job; for several nodes an Indexed Job, whose pods find node 0 by a headless Service.

Pods that are not ready have no name unless the Service publishes them, and none is ready before all have met. A pod
whose node was lost is made again, as are the others, which `run` ends for that; a script that fails ends the job.
"""

from typing import Any

from torchbake.jobs.expressible import Cannot, Needs
from torchbake.jobs.model import Job
from torchbake.jobs.targets import _pod
from torchbake.jobs.targets.yaml_text import documents, without_nothing
from torchbake.jobs.task import Task, counts, master, variables

NAME = "kubernetes"
ABOUT = "a Job, or an Indexed Job with a headless Service, with its ConfigMap and claims"
MOST_NODES = 100_000  # completions of an Indexed Job
CARRIES_FILES = True
CANNOT: tuple[Cannot, ...] = (
    Cannot(
        key="name",
        why="a pod's host is the name with - and its number, and takes 63 characters: shorten the name",
        when=lambda job: len(f"{job.name}-{job.most_nodes - 1}") > 63,
        only="of more than 63 characters with the number of a node",
    ),
)
NEEDS: tuple[Needs, ...] = ()
# With these `run` ends where nodes did not find each other, or one was lost, and 143 is SIGTERM: a drained node.
# docs/env-contract.md has them all. Any other code is the script's own.
NODES_FAILED = (83, 84, 87, 89, 143)


def render(task: Task) -> str:
    return documents(objects(task), head=_head(task))


def objects(task: Task) -> list[dict[str, Any]]:
    """What is applied, in this order."""
    several = task.job.most_nodes > 1
    return [*_pod.surroundings(task), *([_service(task.job)] if several else []), _job(task)]


def _head(task: Task) -> str:
    """What an administrator would ask."""
    job = task.job
    roots = "volume-permissions runs as root, with CHOWN, FOWNER and DAC_OVERRIDE" if task.fixed else ""
    hosts = "a volume is a hostPath" if any(volume.host_path for volume in job.volumes) else ""
    but = " and ".join(filter(None, (roots, hosts)))
    lines = [f'Pod Security "restricted"{" would refuse this: " + but if but else " takes this"}.']
    lines += ["An elastic job ends with its node 0: Kubernetes 1.31 or newer."] if job.elastic else []
    return "\n".join(lines)


def _service(job: Job) -> dict[str, Any]:
    """Names for the pods, also for those that are not ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"job-name": job.name},  # Kubernetes sets this label on a Job's pods
        "ports": [{"name": "master", "port": job.port}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _pod.metadata(job, job.name), "spec": spec}


def _job(task: Task) -> dict[str, Any]:
    job = task.job
    env = variables(job) | counts(job) | master(job, f"{job.name}-0.{job.name}")
    several = job.most_nodes > 1
    spec = {
        "completionMode": "Indexed" if several else None,
        "completions": job.most_nodes if several else None,
        "parallelism": job.most_nodes if several else None,
        "backoffLimit": job.restarts * job.most_nodes,  # each pod that ends so counts
        "activeDeadlineSeconds": job.timeouts.job,
        "podFailurePolicy": _failures(job),
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]} if job.elastic and several else None,
        "template": _pod.template(
            task, env, port_name="master", restartPolicy="Never", subdomain=job.name if several else None
        ),
    }
    metadata = _pod.metadata(job, job.name)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": without_nothing(spec)}


def _failures(job: Job) -> dict[str, Any]:
    """In this order: a pod that its node took along does not count; any code of the script's own ends the job."""
    lost = {"action": "Ignore" if job.restarts else "FailJob", "onPodConditions": [_DISRUPTED]}
    failed = {"containerName": _pod.CONTAINER, "operator": "NotIn", "values": list(NODES_FAILED)}
    # Nothing in the list means the same as no list, which the schemas of Kubernetes 1.28 and older do not take.
    return {"rules": [lost, {"action": "FailJob", "onExitCodes": failed, "onPodConditions": []}]}


_DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
