"""Inside a rank that torchrun (or `run`) has started: all variables are set, and the script runs as it is.

Recognised by RANK together with LOCAL_RANK. No other dialect is read then, as a launcher's own variables stay visible
in its ranks. torchrun also sets GROUP_RANK and GROUP_WORLD_SIZE: the node's rank and the number of nodes.

Source: pytorch/pytorch: torch/distributed/elastic/agent/server/local_elastic_agent.py (worker_env).
"""

from collections.abc import Mapping

from . import values
from .settings import Fact, JobSettings

NAME = "torchrun-worker"
VARIABLES: tuple[str, ...] = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
)


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None outside of a rank."""
    rank, local = values.whole(env, "RANK"), values.whole(env, "LOCAL_RANK")
    if rank is None or local is None:
        return None
    world = values.whole(env, "WORLD_SIZE", least=1)
    if world is None:
        raise values.bad("RANK", rank.value, "and LOCAL_RANK are set, as in a rank, but not WORLD_SIZE: set it too.")
    size = values.whole(env, "LOCAL_WORLD_SIZE", least=1) or Fact(value=1, variable="LOCAL_WORLD_SIZE", guess=True)
    values.check_below(rank, world)
    if not size.guess:
        values.check_below(local, size)
    group = values.whole(env, "GROUP_RANK")
    groups = values.whole(env, "GROUP_WORLD_SIZE", least=1)
    return JobSettings(
        dialect=NAME,
        nnodes=groups or Fact(value=-(-world.value // size.value), variable="WORLD_SIZE"),
        node_rank=group or Fact(value=rank.value // size.value, variable="RANK"),
        nproc_per_node=Fact(value=size.value, variable=size.variable),
        master_addr=values.address(env, "MASTER_ADDR"),
        master_port=values.port(env, "MASTER_PORT"),
        distributed=True,
        already_rank=True,
    )
