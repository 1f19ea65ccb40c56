"""Launchers, and how each is told of a job: one pure module each, all with the same `render`."""

from torchbake.jobs.expressible import Target
from torchbake.jobs.targets import compose, docker, kubernetes, openpai, openpai_v1, pytorchjob, slurm, swarm, torchrun

# In the order in which they are shown.
TARGETS: dict[str, Target] = {
    module.NAME: module
    for module in (
        *(docker, compose, kubernetes, pytorchjob, openpai, openpai_v1),
        *(swarm, slurm, torchrun),
    )
}
