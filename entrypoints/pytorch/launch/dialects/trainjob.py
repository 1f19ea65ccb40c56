"""Kubeflow's TrainJob (trainer v2): torchrun's variables on an Indexed Job.

PET_NNODES, PET_NPROC_PER_NODE (a number or auto), PET_NODE_RANK (the Job's completion index), PET_MASTER_ADDR
(`<job>-node-0-0.<job>`) and PET_MASTER_PORT (29500). Kubernetes adds JOB_COMPLETION_INDEX, as to every Indexed Job;
it is the same number.

Sources: kubeflow/trainer: pkg/runtime/framework/plugins/torch/torch.go and pkg/constants/constants.go.
"""

from collections.abc import Mapping
from dataclasses import replace

from . import torchrun, values
from .settings import JobSettings

NAME = "trainjob"
VARIABLES: tuple[str, ...] = (
    *("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    "JOB_COMPLETION_INDEX",
)
TAKES: tuple[str, ...] = (*torchrun.VARIABLES, "JOB_COMPLETION_INDEX")


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None outside of an Indexed Job, or without PET_NNODES or PET_NODE_RANK."""
    index = values.whole(env, "JOB_COMPLETION_INDEX")
    if not index or not values.text(env, "PET_NNODES") or not values.text(env, "PET_NODE_RANK"):
        return None
    pet = torchrun.read(env)
    if pet is None:
        return None
    return replace(pet, dialect=NAME, node_rank=values.agree(pet.node_rank, index), distributed=True)
