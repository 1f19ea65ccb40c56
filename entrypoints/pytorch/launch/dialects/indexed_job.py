"""A Kubernetes Indexed Job: JOB_COMPLETION_INDEX is this node's rank.

Kubernetes sets nothing else. The user sets the number of nodes (NNODES or WORLD_SIZE, which must be the Job's
`completions` and `parallelism`) and MASTER_ADDR. Pods have the host name `<job>-<index>`. Other pods resolve it only as
`<job>-0.<service>`, through a headless service that the Job's `subdomain` names. An Indexed Job without a number of
nodes, or with one node, is an array of independent jobs, and not read.

Sources: https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/ and
https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""

import re
from collections.abc import Mapping

from . import values
from .settings import JobSettings

NAME = "indexed-job"
VARIABLES: tuple[str, ...] = ("JOB_COMPLETION_INDEX", "NNODES", "WORLD_SIZE", "HOSTNAME")


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None outside of an Indexed Job, or without a number of nodes."""
    index = values.whole(env, "JOB_COMPLETION_INDEX")
    nodes = values.whole(env, "NNODES", least=1) or values.whole(env, "WORLD_SIZE", least=1)
    if index is None or nodes is None or nodes.value == 1:
        return None
    hostname = values.text(env, "HOSTNAME")
    job = hostname.removesuffix(f"-{index.value}") if re.fullmatch(r"[a-z0-9.-]+", hostname) else "JOB"
    hint = f", in an Indexed Job {job}-0.SERVICE with the headless service that its pods' subdomain names"
    return JobSettings(dialect=NAME, node_rank=index, master_hint=hint)
