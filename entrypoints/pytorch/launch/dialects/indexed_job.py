"""A Kubernetes Indexed Job: JOB_COMPLETION_INDEX is this node's rank.

Kubernetes says no more: how many nodes there are comes from the user (NNODES or WORLD_SIZE, which must be the Job's
`completions` and `parallelism`), and so does MASTER_ADDR: pods have the host name `<job>-<index>`, which other pods
resolve only as `<job>-0.<service>` through a headless service that the Job's `subdomain` names. An Indexed Job without
such a count, or with one node, is a plain array of independent jobs and not read.

Sources: https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/ and
https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""

import re
from collections.abc import Mapping

from . import values
from .settings import Settings

NAME = "indexed-job"
VARIABLES: tuple[str, ...] = ("JOB_COMPLETION_INDEX", "NNODES", "WORLD_SIZE", "HOSTNAME")


def read(env: Mapping[str, str]) -> Settings | None:
    """None outside of an Indexed Job, and where the user counts no nodes."""
    index = values.whole(env, "JOB_COMPLETION_INDEX")
    nodes = values.whole(env, "NNODES", least=1) or values.whole(env, "WORLD_SIZE", least=1)
    if index is None or nodes is None or nodes.value == 1:
        return None
    return Settings(dialect=NAME, node_rank=index, master_hint=_hint(values.text(env, "HOSTNAME"), index.value))


def _hint(hostname: str, index: int) -> str:
    job = hostname.removesuffix(f"-{index}") if re.fullmatch(r"[a-z0-9.-]+", hostname) else "JOB"
    return f", in an Indexed Job {job}-0.SERVICE with the headless service that its pods' subdomain names"
