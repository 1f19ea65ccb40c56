"""The variables of this project, as docs/reference/env-contract.md defines them.

Source: this project. RANK and WORLD_SIZE (the number of all processes) are those of torch's `env://` initialisation:
https://pytorch.org/docs/stable/distributed.html#environment-variable-initialization. If a launcher gives a variable
another meaning (`TAKES` in `dialects`), it is not read here. RANK without LOCAL_RANK can only be the rank of a node, as
it is the same for all processes that `run` starts.
"""

from collections.abc import Mapping

from . import values
from .settings import Fact, JobSettings

NAME = "native"
VARIABLES: tuple[str, ...] = (
    *("NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "ELASTIC", "WORLD_SIZE", "RANK"),
)


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None if none of these variables is set."""
    if not values.first_set(env, *VARIABLES):
        return None
    own, bare = values.whole(env, "NODE_RANK"), values.whole(env, "RANK")
    elastic = values.node_range(env, "ELASTIC")
    return JobSettings(
        dialect=NAME,
        nnodes=values.whole(env, "NNODES", least=1),
        node_rank=values.agree(own, bare, "RANK without LOCAL_RANK is the rank of the node"),
        nproc_per_node=values.processes(env, "NPROC_PER_NODE"),
        world_size=values.whole(env, "WORLD_SIZE", least=1),
        master_addr=values.address(env, "MASTER_ADDR"),
        master_port=values.port(env, "MASTER_PORT"),
        elastic=Fact(value=elastic, variable="ELASTIC") if elastic else None,
    )
