"""Launchers, and how each is told of a job: one pure module each, all with the same `render`."""

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

# In the order in which they are shown.
TARGETS: dict[str, Target] = {
    module.NAME: module
    for module in (
        *(docker, compose, swarm),
        *(kubernetes, kubernetes_1_20, helm, jobset, leaderworkerset, pytorchjob, trainjob),
        *(openpai, openpai_v1),
        *(slurm, torchrun),
    )
}


def meant(target: Target, job: Job) -> Target:
    """Which target writes the job: `kubernetes: {api: "1.20"}` in its file means the one of that name."""
    old = target.NAME == kubernetes.NAME and job.kubernetes.api
    return TARGETS[f"{kubernetes.NAME}-{job.kubernetes.api}"] if old else target
