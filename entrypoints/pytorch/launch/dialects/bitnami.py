"""The Bitnami chart for PyTorch, and launchers with its meaning: WORLD_SIZE is the number of nodes, RANK this node.

The chart's master is a Deployment (RANK=0, MASTER_ADDR=127.0.0.1), its workers a StatefulSet `<release>-worker`. Their
command sets RANK from the ordinal in POD_NAME, plus one for the master. If the command is replaced, RANK is absent, and
`run` computes it in the same way. A StatefulSet that includes the master as pod 0 (MASTER_ADDR) counts from 0.
Alibaba's DLC and the training operator before PET_ variables set the same: WORLD_SIZE replicas, RANK a replica.

Recognised by WORLD_SIZE without LOCAL_RANK, if no other variable counts the nodes. With NNODES or another launcher's
count, WORLD_SIZE has torch's meaning (`native`).

Sources:
- bitnami/charts: bitnami/pytorch/templates/statefulset.yaml and deployment.yaml
- kubeflow/training-operator at 5fa872f: pkg/controller.v1/pytorch/envvar.go (before PET_)
- https://alibabacloud.com/help/en/pai/user-guide/general-environment-variables
"""

import re
from collections.abc import Mapping

from . import values
from .settings import Fact, JobSettings

NAME = "bitnami"
VARIABLES: tuple[str, ...] = ("WORLD_SIZE", "RANK", "POD_NAME", "MASTER_ADDR", "MASTER_PORT")
TAKES: tuple[str, ...] = ("WORLD_SIZE", "RANK")

_COUNTED_ELSEWHERE = (
    *("LOCAL_RANK", "NNODES", "ELASTIC"),
    *("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"),
    *("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "PAI_CURRENT_TASK_ROLE_NAME"),
)


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None without WORLD_SIZE, or if another variable counts the nodes."""
    nodes = values.whole(env, "WORLD_SIZE", least=1)
    if nodes is None or values.first_set(env, *_COUNTED_ELSEWHERE):
        return None
    return JobSettings(
        dialect=NAME,
        nnodes=nodes,
        node_rank=values.whole(env, "RANK") or _ordinal(env),
        master_addr=values.address(env, "MASTER_ADDR"),
        master_port=values.port(env, "MASTER_PORT"),
    )


def _ordinal(env: Mapping[str, str]) -> Fact[int] | None:
    match = re.fullmatch(r"(.+)-([0-9]{1,9})", values.text(env, "POD_NAME"))
    if not match:
        return None
    name, ordinal = match[1], int(match[2])
    master = values.text(env, "MASTER_ADDR").partition(".")[0]
    after_master = name.endswith("-worker") and master != f"{name}-0"
    return Fact(value=ordinal + after_master, variable="POD_NAME", guess=True)
