"""Targets: the manifests of each launcher. Each is a pure module with the interface `Target`."""

from torchbake.jobs.expressible import Target
from torchbake.jobs.model import Job
from torchbake.jobs.targets import (
    compose,
    docker,
    helm,
    jobset,
    kubernetes,
    kubernetes_1_20,
    leaderworkerset,
    openpai,
    openpai_v1,
    pytorchjob,
    slurm,
    swarm,
    torchrun,
    trainjob,
)

# In the order in which commands list them.
TARGETS: dict[str, Target] = {
    module.NAME: module
    for module in (
        *(docker, compose, swarm),
        *(kubernetes, kubernetes_1_20, helm, jobset, leaderworkerset, pytorchjob, trainjob),
        *(openpai, openpai_v1),
        *(slurm, torchrun),
    )
}


def target_of(target: Target, job: Job) -> Target:
    """Return the target that writes the job: `kubernetes: {api: "1.20"}` selects kubernetes-1.20."""
    old = target.NAME == kubernetes.NAME and job.kubernetes.api
    return TARGETS[f"{kubernetes.NAME}-{job.kubernetes.api}"] if old else target
