"""The Job of a group of nodes, as Kubernetes runs it alone and within a JobSet. Pure.

A pod whose node was lost is made again, as are the others, which `run` ends for that; a script that fails ends the Job.
"""

from typing import Any

from torchbake.jobs.model import Job
from torchbake.jobs.targets import _pod
from torchbake.jobs.targets.yaml_text import without_nothing
from torchbake.jobs.task import NODE_LOST, Task, ranked

# With these `run` ends where nodes did not find each other, or one was lost, and 143 is SIGTERM: a drained node.
# docs/env-contract.md has them all. Any other code is the script's own.
NODES_FAILED = (83, 84, 87, NODE_LOST, 143)
_ELASTIC = "An elastic job ends with its node 0: Kubernetes 1.31 or newer."


def head(task: Task) -> str:
    """What an administrator would ask of an Indexed Job."""
    return "\n".join([_pod.security(task), *([_ELASTIC] if task.job.elastic else [])])


def index_of(job: Job) -> dict[str, str]:
    """The variable by which a command's torchrun gets its node's number. `run` reads it by itself."""
    return dict.fromkeys(ranked(job, ""), _pod.INDEX) if job.command else {}


def job_spec(
    job: Job, template: dict[str, Any], *, indexed: bool, counted: bool = True, own: bool = True
) -> dict[str, Any]:
    """The spec of a Job around a pod template, which has one container.

    ``own``: people create the Job itself. Otherwise it is a part of an operator's object, which has such fields.

    ``indexed`` gives each pod a number and a host name; ``counted`` says how many there are, unless a launcher does.
    """
    (container,) = template["spec"]["containers"]
    count = job.most_nodes if indexed and counted else None
    spec = {
        "completionMode": "Indexed" if indexed else None,
        "completions": count,
        "parallelism": count,
        "backoffLimit": job.restarts * job.most_nodes,  # each pod that ends so counts
        "activeDeadlineSeconds": job.timeouts.job,
        "podFailurePolicy": _failures(job, container["name"]),
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]} if job.elastic and count else None,
        "ttlSecondsAfterFinished": job.ttl_seconds_after_finished if own else None,
        "suspend": (job.suspend or None) if own else None,
        "managedBy": job.managed_by if own else None,
        "template": template,
    }
    return without_nothing(spec)


def _failures(job: Job, container: str) -> dict[str, Any]:
    """In this order: a pod that its node took along does not count; any code of the script's own ends the job."""
    lost = {"action": "Ignore" if job.restarts else "FailJob", "onPodConditions": [_DISRUPTED]}
    codes = [143] if job.command else list(NODES_FAILED)  # a command's codes are its own
    failed = {"containerName": container, "operator": "NotIn", "values": codes}
    # Nothing in the list means the same as no list, which the schemas of Kubernetes 1.28 and older do not take.
    return {"rules": [lost, {"action": "FailJob", "onExitCodes": failed, "onPodConditions": []}]}


_DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
