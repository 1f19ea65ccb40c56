"""Launchers, and how each is told of a job: one pure module each, all with the same `render`."""

from torchbake.jobs.expressible import Target
from torchbake.jobs.targets import compose, docker, helm, kubernetes, openpai, openpai_v1, pytorchjob

# In the order in which they are shown.
TARGETS: dict[str, Target] = {
    module.NAME: module for module in (docker, compose, kubernetes, helm, pytorchjob, openpai, openpai_v1)
}
