"""Kubeflow's PyTorchJob (training operator v1): RANK is a *node's* rank, WORLD_SIZE counts processes.

Recognised by RANK or WORLD_SIZE next to PET_ variables. WORLD_SIZE is replicas × processes, where a word in place of
the number of processes (`auto`, the default) counts as 1. MASTER_ADDR and PET_MASTER_ADDR are `<job>-master-0`; older
operators gave the master `localhost`, which is right on the master. With an elastic policy the rendezvous is at
PET_RDZV_ENDPOINT, usually worker 0, and RANK and MASTER_ADDR are ignored. Operators before PET_ are read by `bitnami`.

Sources: kubeflow/training-operator (release 1.9): pkg/controller.v1/pytorch/envvar.go, master.go and elastic.go.
"""

from collections.abc import Mapping
from dataclasses import replace

from . import torchrun, values
from .settings import Fact, JobSettings

NAME = "pytorchjob"
VARIABLES: tuple[str, ...] = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", *torchrun.VARIABLES)
TAKES = VARIABLES


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None without RANK and WORLD_SIZE, or without PET_ variables."""
    twins = values.first_set(env, "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
    pet = torchrun.read(env)
    if pet is None or not twins or not values.first_set(env, "RANK", "WORLD_SIZE"):
        return None
    if pet.elastic:
        return replace(pet, dialect=NAME, distributed=True)
    rank, world = values.whole(env, "RANK"), values.whole(env, "WORLD_SIZE", least=1)
    per_node = pet.nproc_per_node.value if pet.nproc_per_node else 1
    counted = per_node if isinstance(per_node, int) else 1
    return replace(
        pet,
        dialect=NAME,
        nnodes=_nodes(pet, world, counted),
        node_rank=values.agree(rank, pet.node_rank, "a PyTorchJob's RANK is the rank of the node"),
        world_size=world if per_node == counted else None,
        master_addr=values.agree(values.address(env, "MASTER_ADDR"), pet.master_addr),
        master_port=values.agree(values.port(env, "MASTER_PORT"), pet.master_port),
        distributed=True,
    )


def _nodes(pet: JobSettings, world: Fact[int] | None, counted: int) -> Fact[int] | None:
    """Return the number of nodes, checked against WORLD_SIZE as the operator computes it."""
    nodes = pet.nnodes
    if world is None or (nodes and nodes.value * counted == world.value):
        return nodes
    if nodes:
        why = f"a PyTorchJob's WORLD_SIZE is its nodes × {counted}, `auto` counted as 1"
        raise values.disagree(nodes, world, why)
    if world.value % counted:
        assert pet.nproc_per_node is not None  # else each node has one process, which divides all
        why = "a PyTorchJob's WORLD_SIZE is its nodes × the processes on each"
        raise values.disagree(world, pet.nproc_per_node, why)
    return Fact(value=world.value // counted, variable="WORLD_SIZE")
