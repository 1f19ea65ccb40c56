"""The Job of a group of nodes, for Kubernetes itself and in a JobSet. Pure.

If a node is lost, `run` ends the other nodes, and Kubernetes replaces all pods. A failed script ends the Job.
"""

from typing import Any

from torchbake.jobs.model import Job
from torchbake.jobs.targets import _pod
from torchbake.jobs.targets.yaml_text import without_nothing
from torchbake.jobs.task import NODE_LOST, Task, rank_variables

# Exit codes of `run` if nodes did not find each other or a node was lost; 143 is SIGTERM, as of a drained node.
# docs/reference/env-contract.md has them all. Any other code is the script's.
NODES_FAILED = (83, 84, 87, NODE_LOST, 143)
_ELASTIC = "An elastic job ends with its node 0: Kubernetes 1.31 or newer."


def head(task: Task) -> str:
    """Return the head of a manifest with an Indexed Job: its requirements of the cluster."""
    return "\n".join([_pod.security(task), *([_ELASTIC] if task.job.elastic else [])])


def index_of(job: Job) -> dict[str, str]:
    """Return the field with a node's number by the variable of torchrun in a command. `run` needs no such variable."""
    return dict.fromkeys(rank_variables(job, ""), _pod.INDEX) if job.command else {}


def job_spec(
    job: Job, template: dict[str, Any], *, indexed: bool, counted: bool = True, own: bool = True
) -> dict[str, Any]:
    """Return the spec of a Job around a pod template with one container.

    Each pod gets a number and a host name if ``indexed`` is true. The spec has the number of pods if ``counted`` is
    true, and the fields of the Job's lifecycle if ``own`` is true; for operators, their own object has these fields.
    """
    (container,) = template["spec"]["containers"]
    count = job.most_nodes if indexed and counted else None
    spec = {
        "completionMode": "Indexed" if indexed else None,
        "completions": count,
        "parallelism": count,
        "backoffLimit": job.restarts * job.most_nodes,  # each failed pod counts
        "activeDeadlineSeconds": job.timeouts.job,
        "podFailurePolicy": _failure_policy(job, container["name"]),
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]} if job.elastic and count else None,
        "ttlSecondsAfterFinished": job.ttl_seconds_after_finished if own else None,
        "suspend": (job.suspend or None) if own else None,
        "managedBy": job.managed_by if own else None,
        "template": template,
    }
    return without_nothing(spec)


def _failure_policy(job: Job, container: str) -> dict[str, Any]:
    """Return two rules, of which the first that matches counts: for pods of a lost node, and for failed scripts."""
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    lost = {"action": "Ignore" if job.restarts else "FailJob", "onPodConditions": [disrupted]}
    codes = [143] if job.command else list(NODES_FAILED)  # a command may use the codes of `run` itself
    failed = {"containerName": container, "operator": "NotIn", "values": codes}
    # An empty list means the same as no list, which the schemas of Kubernetes 1.28 and older do not take.
    return {"rules": [lost, {"action": "FailJob", "onExitCodes": failed, "onPodConditions": []}]}
