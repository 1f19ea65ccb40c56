"""torchrun's own variables: every option of its command line can be given as PET_<OPTION>.

PET_NNODES is a number or MIN:MAX. A range, or the c10d backend, makes the job elastic: its ranks are then assigned at
the rendezvous (PET_RDZV_ENDPOINT). The static backend (the default) uses PET_NODE_RANK, PET_MASTER_ADDR and
PET_MASTER_PORT. PET_NPROC_PER_NODE is a number, auto, gpu or cpu. On a node without GPUs torchrun's `auto` takes all
cores, while `run` starts one process.

Sources: pytorch/pytorch: torch/distributed/run.py (options, parse_min_max_nnodes, determine_local_world_size,
get_rdzv_endpoint) and torch/distributed/argparse_util.py (PET_).
"""

import re
from collections.abc import Mapping

from . import values
from .settings import Fact, JobSettings

NAME = "torchrun"
VARIABLES: tuple[str, ...] = (
    *("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    *("PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND"),
)


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None if none of these variables is set."""
    if not values.first_set(env, *VARIABLES):
        return None
    nodes = values.node_range(env, "PET_NNODES")
    backend = values.text(env, "PET_RDZV_BACKEND") or "static"
    if backend not in ("static", "c10d"):
        raise values.bad("PET_RDZV_BACKEND", backend, "is not supported: set it to c10d or static.")
    elastic = nodes is not None and (nodes[0] < nodes[1] or backend == "c10d")
    address, port = _place(env, elastic=elastic or backend == "c10d")
    return JobSettings(
        dialect=NAME,
        nnodes=Fact(value=nodes[1], variable="PET_NNODES") if nodes and not elastic else None,
        node_rank=None if elastic else values.whole(env, "PET_NODE_RANK"),
        nproc_per_node=values.processes(env, "PET_NPROC_PER_NODE"),
        master_addr=address,
        master_port=port,
        elastic=Fact(value=nodes, variable="PET_NNODES") if nodes and elastic else None,
    )


def _place(env: Mapping[str, str], *, elastic: bool) -> tuple[Fact[str] | None, Fact[int] | None]:
    """Return the address and port of the rendezvous endpoint, else (in torchrun only static jobs) the master's."""
    endpoint = values.endpoint(env, "PET_RDZV_ENDPOINT")
    address, port = values.address(env, "PET_MASTER_ADDR"), values.port(env, "PET_MASTER_PORT")
    if endpoint is None:
        return address, port
    if elastic:
        return endpoint
    return values.agree(endpoint[0], address), values.agree(endpoint[1], port)


def max_restarts(env: Mapping[str, str], otherwise: int) -> int:
    """Read the number of restarts of an elastic job."""
    restarts = values.whole(env, "PET_MAX_RESTARTS")
    return restarts.value if restarts else otherwise


def rdzv_id(env: Mapping[str, str], otherwise: str) -> str:
    """Read the name of an elastic job at its rendezvous."""
    name = values.text(env, "PET_RDZV_ID") or otherwise
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,253}", name):
        raise values.bad("PET_RDZV_ID", name, "is not the name of a job: use letters, digits and _ . : - in it.")
    return name


def rdzv_conf(env: Mapping[str, str]) -> dict[str, str]:
    """Read the settings of the rendezvous in torchrun's form: NAME=VALUE,…"""
    text = values.text(env, "PET_RDZV_CONF")
    entries = [each.strip().partition("=") for each in text.split(",")] if text else []
    for name, _, value in entries:
        if not re.fullmatch(r"[A-Za-z0-9_]+", name) or not re.fullmatch(r"[!-~]+", value):
            raise values.bad("PET_RDZV_CONF", text, "is not NAME=VALUE,NAME=VALUE: correct it.")
    return {name: value for name, _, value in entries}
