"""The contract of a job, which all nodes must agree on, read from the environment that a launcher has made.

Pure functions of that environment. docs/reference/dialects.md lists the launchers and the meaning of their variables.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .dialects import Fact, JobSettings, RankSettings, detect, merge, torchrun, values
from .launch_error import Code, LaunchError

STANDALONE, DISTRIBUTED = "standalone", "distributed"
MOST_NODES, MOST_PROCESSES = 100_000, 4096  # far above any job and any machine


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The settings of one node's `run`. An elastic job has at most `nnodes` nodes, and torchrun assigns its ranks."""

    mode: str  # standalone or distributed
    nnodes: int = 1
    node_rank: int = 0
    nproc_per_node: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = 49875
    rendezvous_timeout: float = 300
    group_timeout: int = 600
    stop_grace: float = 30
    stopped_timeout: float = 60  # 0: no limit
    job_token: str = field(default="", repr=False)
    elastic: tuple[int, int] | None = None
    max_restarts: int = 3  # as in torchrun's own examples of elastic jobs
    rdzv_id: str = "run"
    rdzv_conf: Mapping[str, str] = field(default_factory=dict)
    dialects: tuple[str, ...] = ()
    already_rank: bool = False
    own: RankSettings | None = None  # this process's rank if an MPI launcher has started it

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
        """Return the contract's variables for one process of this node; a standalone job has only MODE."""
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
    """Read the contract from an environment, on a node with so many GPUs and CPUs. Raises only LaunchError.

    ``free_port`` is the port of a job on one node that names none: no other node has to know it.
    """
    mode = values.text(env, "MODE")
    if mode not in ("", STANDALONE, DISTRIBUTED):
        raise values.bad("MODE", mode, f"is unknown: set it to {STANDALONE} or {DISTRIBUTED}, or leave it unset.")
    detected = detect(env)
    job = merge(detected)
    nnodes = _nodes(job)
    nproc = _processes(job.nproc_per_node, gpus=gpus, cpus=cpus, alone=mode == STANDALONE)
    several = nnodes > 1 or nproc > 1 or job.elastic is not None
    # A count of nodes or processes, even of one, asks for a group: the same script must run on one node and on many.
    counted = any((job.nnodes, job.nproc_per_node, job.world_size))
    if mode == STANDALONE and several:
        raise _not_alone(job, nnodes)
    _check_world(job, nnodes, nproc)
    node_rank = _node_rank(job, nnodes)
    standalone = _standalone(env, detected, job)
    if mode == STANDALONE or not (mode or several or counted or job.distributed):
        return standalone
    _check_interface(env, job)
    return replace(
        standalone,
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


def _standalone(env: Mapping[str, str], detected: Sequence[JobSettings], job: JobSettings) -> Contract:
    group_timeout = values.whole(env, "GROUP_TIMEOUT", least=1, most=values.TWO_WEEKS)
    return Contract(
        mode=STANDALONE,
        rendezvous_timeout=values.seconds(env, "RENDEZVOUS_TIMEOUT", Contract.rendezvous_timeout),
        group_timeout=group_timeout.value if group_timeout else Contract.group_timeout,
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
    """Return the environment without the variables by which torch or torchrun recognise a distributed job.

    GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME stay, as they describe the machine and not the job. The variables of
    schedulers stay too, as scripts may read them.
    """
    return {
        name: value
        for name, value in env.items()
        if name not in _OF_THE_JOB and not name.startswith(("PET_", "TORCHELASTIC_"))
    }


def _nodes(job: JobSettings) -> int:
    """Return the number of nodes; of an elastic job the maximum."""
    if job.elastic is None:
        return _bound(job.nnodes, job.nnodes.value, MOST_NODES) if job.nnodes else 1
    least, most = job.elastic.value
    _bound(job.elastic, most, MOST_NODES)
    if job.nnodes and not least <= job.nnodes.value <= most:
        raise values.disagree(job.nnodes, job.elastic, "the number of nodes must lie in the range")
    return most


def _processes(fact: Fact[int | str] | None, *, gpus: int, cpus: int, alone: bool) -> int:
    if fact is None or (alone and fact.guess):
        return 1
    if isinstance(fact.value, int):
        return _bound(fact, fact.value, MOST_PROCESSES)
    if fact.value == "gpu" and gpus < 1:
        raise values.bad(fact.variable, fact.value, "needs a GPU, and this container has none: give it one, or set 1.")
    return max(1, cpus if fact.value == "cpu" else gpus)


def _bound(fact: Fact[Any], count: int, most: int) -> int:
    if count > most:  # one digit too many would start processes until the machine has no memory left
        raise values.bad(fact.variable, fact.value, f"is more than {most}, which no job has: correct it.")
    return count


def _node_rank(job: JobSettings, nnodes: int) -> int:
    rank = job.node_rank
    if rank is None and nnodes > 1 and not job.elastic:
        why = f"nothing says which of them this is: set NODE_RANK, from 0 to {nnodes - 1}."
        raise LaunchError(Code.BAD_VALUE, f"NODE_RANK is not set, but {_count(job, nnodes)}, and {why}")
    if rank and rank.value >= nnodes:
        ranks = "it can only be 0" if nnodes == 1 else f"nodes go from 0 to {nnodes - 1}"
        raise LaunchError(
            Code.BAD_VALUE,
            f"{rank.variable} makes this node {rank.value}, but {_count(job, nnodes)}, so {ranks}: "
            f"correct {rank.variable}, or the number of nodes (NNODES).",
        )
    return rank.value if rank else 0


def _count(job: JobSettings, nnodes: int) -> str:
    """Return the number of nodes, and the variable that gives it, for a sentence."""
    nodes = "there is 1 node" if nnodes == 1 else f"there are {nnodes} nodes"
    source = job.elastic or job.nnodes
    if source is None:
        return nodes
    return (
        f"{nodes} ({source.variable}{' counts nodes, as NNODES is not set' if source.variable == 'WORLD_SIZE' else ''})"
    )


def _check_world(job: JobSettings, nnodes: int, nproc: int) -> None:
    world = job.world_size
    if world is None or job.elastic or world.value == nnodes * nproc:
        return
    nodes = values.show(job.nnodes.variable, nnodes) if job.nnodes else "1 node"
    processes = job.nproc_per_node
    each = values.show(processes.variable, processes.value) if processes else "1 process on each"
    fits = f"; NPROC_PER_NODE={world.value // nnodes} would fit" if world.value % nnodes == 0 else ""
    text = f"{nodes} × {each} make {nnodes * nproc}{fits}"
    raise LaunchError(
        Code.CONFLICT,
        f"{values.show(world.variable, world.value)}, but {text}: correct one of them, or leave WORLD_SIZE unset.",
    )


def _not_alone(job: JobSettings, nnodes: int) -> LaunchError:
    fact: Fact[Any] | None = job.elastic or (job.nnodes if nnodes > 1 else job.nproc_per_node)
    assert fact is not None  # else there was one process
    several = values.show(fact.variable, fact.value)
    return LaunchError(
        Code.CONFLICT, f"MODE={STANDALONE}, but {several} asks for several processes: unset one of them."
    )


def _master_addr(job: JobSettings, nnodes: int, node_rank: int) -> str:
    master = job.master_addr
    if master is None:
        if nnodes > 1 and (job.own or not job.already_rank):
            why = f"set it to the name or address of node 0{job.master_hint}."
            raise LaunchError(Code.BAD_VALUE, f"MASTER_ADDR is not set, but {_count(job, nnodes)}: {why}")
        return Contract.master_addr
    if node_rank > 0 and values.is_loopback(master.value) and (job.own or not job.already_rank):
        raise LaunchError(
            Code.LOOPBACK_MASTER,
            f"{values.show(master.variable, master.value)} would be node {node_rank} itself: "
            "set it to the name or address by which this node reaches node 0.",
        )
    return master.value


def _master_port(job: JobSettings, otherwise: int) -> int:
    if job.master_port:
        return job.master_port.value
    return Contract.master_port if job.elastic else otherwise  # nodes that join later must know the port


def _check_interface(env: Mapping[str, str], job: JobSettings) -> None:
    interface = values.text(env, "GLOO_SOCKET_IFNAME")
    if not re.fullmatch("[!-~]*", interface):
        raise values.bad("GLOO_SOCKET_IFNAME", interface, "is not the name of an interface, such as eth0: correct it.")
    if interface.startswith("^") and not job.already_rank:
        why = "excludes interfaces, which only NCCL can: name the interface, or leave it unset and `run` finds it."
        raise values.bad("GLOO_SOCKET_IFNAME", interface, why)
