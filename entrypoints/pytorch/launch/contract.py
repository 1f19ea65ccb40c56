"""The job as all nodes must see it: out of the environment that a launcher made, or a LaunchError that says why not.

Pure: reads only the mapping that it is given. docs/dialects.md has the launchers and how their variables are read.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .dialects import Fact, Rank, Settings, detect, merge, torchrun, values
from .launch_error import Code, LaunchError

STANDALONE, DISTRIBUTED = "standalone", "distributed"
MOST_NODES, MOST_PROCESSES = 100_000, 4096  # far above any job and any machine


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What one node's `run` does. An elastic job has `nnodes` at most, and torchrun gives out its ranks."""

    mode: str  # standalone or distributed
    nnodes: int = 1
    node_rank: int = 0
    nproc_per_node: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = 49875
    rendezvous_timeout: float = 300
    group_timeout: int = 600
    stop_grace: float = 30
    stopped_timeout: float = 60  # 0: a rank may be stopped for ever
    job_token: str = field(default="", repr=False)
    elastic: tuple[int, int] | None = None
    max_restarts: int = 3  # what torchrun's own examples of elastic jobs use
    rdzv_id: str = "run"
    rdzv_conf: Mapping[str, str] = field(default_factory=dict)
    dialects: tuple[str, ...] = ()
    already_rank: bool = False
    own: Rank | None = None  # what this process is, where an MPI launcher has started it as a rank

    @property
    def distributed(self) -> bool:
        return self.mode == DISTRIBUTED

    @property
    def world_size(self) -> int:
        return self.nnodes * self.nproc_per_node

    @property
    def first_rank(self) -> int:
        return self.node_rank * self.nproc_per_node

    @property
    def is_master(self) -> bool:
        return self.node_rank == 0

    def rank_environment(self, local_rank: int) -> dict[str, str]:
        """The contract's variables for one process of this node, or for this one; standalone has MODE alone."""
        if not 0 <= local_rank < self.nproc_per_node:
            raise ValueError(f"no local rank {local_rank} among {self.nproc_per_node}")
        if not self.distributed:
            return {"MODE": self.mode}
        if self.own:
            place = {"MASTER_ADDR": self.master_addr, "MASTER_PORT": str(self.master_port)}
            return {"MODE": self.mode, **self.own.variables, **place, "GROUP_TIMEOUT": str(self.group_timeout)}
        return {
            "MODE": self.mode,
            "NNODES": str(self.nnodes),
            "NODE_RANK": str(self.node_rank),
            "NPROC_PER_NODE": str(self.nproc_per_node),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "WORLD_SIZE": str(self.world_size),
            "RANK": str(self.first_rank + local_rank),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(self.nproc_per_node),
            "GROUP_RANK": str(self.node_rank),
            "GROUP_TIMEOUT": str(self.group_timeout),
        }


def contract_of(
    env: Mapping[str, str], *, gpus: int = 0, cpus: int = 1, free_port: int = Contract.master_port
) -> Contract:
    """The contract of this environment, on a node with so many GPUs and CPUs. Raises LaunchError, and nothing else.

    ``free_port`` serves a job of one node that names no port: nobody else has to know it.
    """
    asked = _mode(env)
    detected = detect(env)
    job = merge(detected)
    nnodes = _nodes(job)
    nproc = _processes(job.nproc_per_node, gpus=gpus, cpus=cpus, alone=asked == STANDALONE)
    several = nnodes > 1 or nproc > 1 or job.elastic is not None
    # Whoever counts nodes or processes wants a group, be it of one: the same script must run on one node and on many.
    counted = any((job.nnodes, job.nproc_per_node, job.world_size))
    if asked == STANDALONE and several:
        raise _not_alone(job, nnodes)
    _check_world(job, nnodes, nproc)
    node_rank = _node_rank(job, nnodes)
    alone = _standalone(env, detected, job)
    if asked == STANDALONE or not (asked or several or counted or job.distributed):
        return alone
    _check_interface(env, job)
    return replace(
        alone,
        mode=DISTRIBUTED,
        nnodes=nnodes,
        node_rank=node_rank,
        nproc_per_node=nproc,
        master_addr=_master_addr(job, nnodes, node_rank),
        master_port=_master_port(job, free_port if nnodes == 1 and not job.already_rank else Contract.master_port),
        elastic=job.elastic.value if job.elastic else None,
        max_restarts=torchrun.max_restarts(env, Contract.max_restarts),
        rdzv_id=torchrun.rdzv_id(env, Contract.rdzv_id),
        rdzv_conf=torchrun.rdzv_conf(env),
    )


def _standalone(env: Mapping[str, str], detected: Sequence[Settings], job: Settings) -> Contract:
    """What holds also where there is no group."""
    return Contract(
        mode=STANDALONE,
        rendezvous_timeout=values.seconds(env, "RENDEZVOUS_TIMEOUT", Contract.rendezvous_timeout),
        group_timeout=_group_timeout(env),
        stop_grace=values.seconds(env, "STOP_GRACE", Contract.stop_grace, zero=True),
        stopped_timeout=values.seconds(env, "STOPPED_TIMEOUT", Contract.stopped_timeout, zero=True),
        job_token=values.text(env, "JOB_TOKEN"),
        dialects=tuple(settings.dialect for settings in detected),
        already_rank=job.already_rank,
        own=job.own,
    )


_OF_THE_JOB = {
    *("MODE", "NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "ELASTIC"),
    *("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "GROUP_TIMEOUT", "RENDEZVOUS_TIMEOUT"),
    "JOB_TOKEN",  # a script has no use for it, and may print its environment
}


def without_distributed(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without anything that torch or torchrun would take for a distributed job.

    The interfaces that the user chose stay (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME): they tell of the machine, not
    of the job. So do the variables of schedulers, which scripts use for their own ends.
    """
    return {
        name: value
        for name, value in env.items()
        if name not in _OF_THE_JOB and not name.startswith(("PET_", "TORCHELASTIC_"))
    }


def _mode(env: Mapping[str, str]) -> str:
    mode = values.text(env, "MODE")
    if mode not in ("", STANDALONE, DISTRIBUTED):
        raise values.bad("MODE", mode, f"is unknown: set it to {STANDALONE} or {DISTRIBUTED}, or leave it unset.")
    return mode


def _group_timeout(env: Mapping[str, str]) -> int:
    timeout = values.whole(env, "GROUP_TIMEOUT", least=1, most=values.TWO_WEEKS)
    return timeout.value if timeout else Contract.group_timeout


def _nodes(job: Settings) -> int:
    """How many nodes there are, at most."""
    if job.elastic is None:
        return _bounded(job.nnodes, job.nnodes.value, MOST_NODES) if job.nnodes else 1
    least, most = job.elastic.value
    _bounded(job.elastic, most, MOST_NODES)
    if job.nnodes and not least <= job.nnodes.value <= most:
        raise values.disagree(job.nnodes, job.elastic, "the number of nodes must lie in the range")
    return most


def _processes(wanted: Fact[int | str] | None, *, gpus: int, cpus: int, alone: bool) -> int:
    if wanted is None or (alone and wanted.guess):
        return 1
    if isinstance(wanted.value, int):
        return _bounded(wanted, wanted.value, MOST_PROCESSES)
    if wanted.value == "gpu" and gpus < 1:
        raise values.bad(
            wanted.variable, wanted.value, "needs a GPU, and this container has none: give it one, or set 1."
        )
    return max(1, cpus if wanted.value == "cpu" else gpus)


def _bounded(fact: Fact[Any], count: int, most: int) -> int:
    """A number of nodes or processes that can be: one digit too many would start processes until nothing is left."""
    if count > most:
        raise values.bad(fact.variable, fact.value, f"is more than {most}, which no job has: correct it.")
    return count


def _node_rank(job: Settings, nnodes: int) -> int:
    rank = job.node_rank
    if rank is None and nnodes > 1 and not job.elastic:
        why = f"nothing says which of them this is: set NODE_RANK, from 0 to {nnodes - 1}."
        raise LaunchError(Code.BAD_VALUE, f"NODE_RANK is not set, but {_counted(job, nnodes)}, and {why}")
    if rank and rank.value >= nnodes:
        ranks = "it can only be 0" if nnodes == 1 else f"nodes go from 0 to {nnodes - 1}"
        raise LaunchError(
            Code.BAD_VALUE,
            f"{rank.variable} makes this node {rank.value}, but {_counted(job, nnodes)}, so {ranks}: "
            f"correct {rank.variable}, or the number of nodes (NNODES).",
        )
    return rank.value if rank else 0


def _counted(job: Settings, nnodes: int) -> str:
    """How many nodes there are, and who says so."""
    nodes = "there is 1 node" if nnodes == 1 else f"there are {nnodes} nodes"
    source = job.elastic or job.nnodes
    if source is None:
        return nodes
    return (
        f"{nodes} ({source.variable}{' counts nodes, as NNODES is not set' if source.variable == 'WORLD_SIZE' else ''})"
    )


def _check_world(job: Settings, nnodes: int, nproc: int) -> None:
    world = job.world_size
    if world is None or job.elastic or world.value == nnodes * nproc:
        return
    nodes = values.show(job.nnodes.variable, nnodes) if job.nnodes else "1 node"
    processes = job.nproc_per_node
    each = values.show(processes.variable, processes.value) if processes else "1 process on each"
    fits = f"; NPROC_PER_NODE={world.value // nnodes} would fit" if world.value % nnodes == 0 else ""
    made = f"{nodes} × {each} make {nnodes * nproc}{fits}"
    raise LaunchError(
        Code.CONFLICT,
        f"{values.show(world.variable, world.value)}, but {made}: correct one of them, or leave WORLD_SIZE unset.",
    )


def _not_alone(job: Settings, nnodes: int) -> LaunchError:
    fact: Fact[Any] | None = job.elastic or (job.nnodes if nnodes > 1 else job.nproc_per_node)
    assert fact is not None  # else there was one process
    several = values.show(fact.variable, fact.value)
    return LaunchError(
        Code.CONFLICT, f"MODE={STANDALONE}, but {several} asks for several processes: unset one of them."
    )


def _master_addr(job: Settings, nnodes: int, node_rank: int) -> str:
    master = job.master_addr
    if master is None:
        if nnodes > 1 and (job.own or not job.already_rank):
            why = f"set it to the name or address of node 0{job.master_hint}."
            raise LaunchError(Code.BAD_VALUE, f"MASTER_ADDR is not set, but {_counted(job, nnodes)}: {why}")
        return Contract.master_addr
    if node_rank > 0 and values.is_loopback(master.value) and (job.own or not job.already_rank):
        raise LaunchError(
            Code.LOOPBACK_MASTER,
            f"{values.show(master.variable, master.value)} would be node {node_rank} itself: "
            "set it to the name or address by which this node reaches node 0.",
        )
    return master.value


def _master_port(job: Settings, otherwise: int) -> int:
    """Others may come to an elastic job later, so that its port must be one that all know."""
    if job.master_port:
        return job.master_port.value
    return Contract.master_port if job.elastic else otherwise


def _check_interface(env: Mapping[str, str], job: Settings) -> None:
    interface = values.text(env, "GLOO_SOCKET_IFNAME")
    if not re.fullmatch("[!-~]*", interface):
        raise values.bad("GLOO_SOCKET_IFNAME", interface, "is not the name of an interface, such as eth0: correct it.")
    if interface.startswith("^") and not job.already_rank:
        why = "excludes interfaces, which only NCCL can: name the interface, or leave it unset and `run` finds it."
        raise values.bad("GLOO_SOCKET_IFNAME", interface, why)
