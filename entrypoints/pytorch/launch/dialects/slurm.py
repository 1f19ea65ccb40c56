"""Slurm: a task on each node, started with `srun --ntasks-per-node=1`; `run` starts the processes itself.

The variables of the step precede those of the job, as a step may have fewer nodes. The master is the first host of the
node list, in whose order SLURM_NODEID counts. SLURM_LAUNCH_NODE_IPADDR is the host of `srun`, perhaps a login node, and
serves only without a list. The processes on each node are SLURM_GPUS_ON_NODE, unless NPROC_PER_NODE is set. That number
and the master's name are guesses: MASTER_ADDR may name another address of the master.

Sources: SchedMD/slurm: doc/man/man1/srun.1 ("OUTPUT ENVIRONMENT VARIABLES") and doc/man/man1/scontrol.1 ("hostnames";
the syntax of host lists); https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
"""

import re
from collections.abc import Mapping

from . import values
from .settings import Fact, JobSettings

NAME = "slurm"
VARIABLES: tuple[str, ...] = (
    *("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NODEID"),
    *("SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS"),
    *("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_LAUNCH_NODE_IPADDR"),
    "SLURM_GPUS_ON_NODE",
)


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None outside of a Slurm job."""
    nodes = values.whole(
        env, values.first_set(env, "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"), least=1
    )
    if nodes is None:
        return None
    _check_tasks(env, nodes.value)
    node = values.whole(env, "SLURM_NODEID")
    if node is None and nodes.value > 1 and not values.first_set(env, "NODE_RANK", "RANK"):
        why = "but SLURM_NODEID is not set: start `run` on every node with `srun --ntasks-per-node=1`."
        raise values.bad(nodes.variable, nodes.value, why)
    gpus = values.whole(env, "SLURM_GPUS_ON_NODE")
    return JobSettings(
        dialect=NAME,
        nnodes=nodes,
        node_rank=node,
        nproc_per_node=Fact(value=gpus.value, variable=gpus.variable, guess=True) if gpus and gpus.value else None,
        master_addr=_master(env),
    )


def _check_tasks(env: Mapping[str, str], nodes: int) -> None:
    """Check for one task on each node, of the step before the job, which may have other steps."""
    variable = values.first_set(
        env, "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS"
    )
    value = values.text(env, variable)
    if not value:
        return
    # In counts such as 2(x3),1 each number may be for several nodes.
    counts = [values.number(variable, re.sub(r"\(x[0-9]+\)$", "", count), least=1) for count in value.split(",")]
    most = nodes if variable in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") else 1
    if max(counts) > most:
        why = "starts several tasks on a node: use `srun --ntasks-per-node=1`, and NPROC_PER_NODE for the processes."
        raise values.bad(variable, value, why)


def _master(env: Mapping[str, str]) -> Fact[str] | None:
    variable = values.first_set(env, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    if not variable:
        launch = values.address(env, "SLURM_LAUNCH_NODE_IPADDR")
        return Fact(value=launch.value, variable=launch.variable, guess=True) if launch else None
    return Fact(value=first_host(variable, values.text(env, variable)), variable=variable, guess=True)


_GROUP = re.compile(r"\[([0-9]+)(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*\]")
_HOSTS = re.compile(r"(?:[A-Za-z0-9._-]+|" + _GROUP.pattern + r")+")


def first_host(variable: str, hosts: str) -> str:
    """Return the first host of a list such as ``gpu[01-03,07],login1`` (gpu01)."""
    match = _HOSTS.match(hosts)
    if not match or hosts[match.end() :][:1] not in ("", ","):
        raise values.bad(variable, hosts, "is not a list of hosts such as gpu[01-03,07]: set MASTER_ADDR to node 0.")
    return values.host(variable, _GROUP.sub(r"\1", match[0]))
