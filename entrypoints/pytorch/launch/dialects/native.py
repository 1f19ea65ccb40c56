"""The image's own variables, as docs/env-contract.md has them.

Source: this project. RANK and WORLD_SIZE come from torch's `env://` initialisation, whose meaning of WORLD_SIZE
(all processes) is kept here: https://pytorch.org/docs/stable/distributed.html#environment-variable-initialization.
A launcher that gives a variable another meaning takes it over (see `Dialect.TAKES` in `dialects`); it is not read here
then. RANK without LOCAL_RANK can only be the rank of a node: it is the same for all processes started here.
"""

from collections.abc import Mapping

from . import values
from .settings import Fact, Settings

NAME = "native"
VARIABLES: tuple[str, ...] = (
    "NNODES",
    "NODE_RANK",
    "NPROC_PER_NODE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "ELASTIC",
    "WORLD_SIZE",
    "RANK",
)


def read(env: Mapping[str, str]) -> Settings | None:
    """None when none of these variables is set."""
    if not values.first_set(env, *VARIABLES):
        return None
    return Settings(
        dialect=NAME,
        nnodes=values.whole(env, "NNODES", least=1),
        node_rank=_node_rank(env),
        nproc_per_node=values.processes(env, "NPROC_PER_NODE"),
        world_size=values.whole(env, "WORLD_SIZE", least=1),
        master_addr=values.address(env, "MASTER_ADDR"),
        master_port=values.port(env, "MASTER_PORT"),
        elastic=_elastic(env),
    )


def _node_rank(env: Mapping[str, str]) -> Fact[int] | None:
    own, bare = values.whole(env, "NODE_RANK"), values.whole(env, "RANK")
    return values.agree(own, bare, "RANK without LOCAL_RANK is the rank of the node")


def _elastic(env: Mapping[str, str]) -> Fact[tuple[int, int]] | None:
    found = values.node_range(env, "ELASTIC")
    return Fact(value=found, variable="ELASTIC") if found else None
