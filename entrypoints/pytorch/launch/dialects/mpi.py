"""An MPI launcher: mpirun of Open MPI, or mpiexec of MPICH, Intel MPI (Hydra) and Cray (PALS).

The launcher starts and watches one process for each rank. So `run` sets torch's variables and becomes the script.
MASTER_ADDR, the host of rank 0, is in none of the launcher's variables; on a single node it is 127.0.0.1. If NNODES,
NODE_RANK or NPROC_PER_NODE is set, each started process is a node, as for Slurm, and `run` starts the ranks. Slurm's
variables are then ignored, as in its allocation they describe mpirun's daemons. `srun` with PMI or PMIx is read by
`slurm`. With MODE=standalone every process is independent.

Sources:
- https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html
- pmodels/mpich: src/pm/hydra/proxy (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS)
- Cray PALS: man mpiexec (PMI_LOCAL_RANK, PMI_LOCAL_SIZE)
"""

from collections.abc import Mapping

from ..launch_error import Code, LaunchError
from . import slurm, values
from .settings import Fact, JobSettings, RankSettings

NAME = "mpi"
# For each launcher the variables of world size, rank, local world size and local rank.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("PMI_SIZE", "PMI_RANK", "PMI_LOCAL_SIZE", "PMI_LOCAL_RANK"),
)
_OF_NODES = ("NNODES", "NODE_RANK", "NPROC_PER_NODE")
_BARE = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
VARIABLES: tuple[str, ...] = (
    *dict.fromkeys(name for names in _LAUNCHERS for name in names),
    *("PMIX_RANK", "MODE", *_OF_NODES, "WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"),
)
TAKES: tuple[str, ...] = slurm.VARIABLES

_COUNTED_ELSEWHERE = (
    *(*_OF_NODES, "WORLD_SIZE", "ELASTIC", "PET_NNODES", "PAI_CURRENT_TASK_ROLE_NAME"),
    *("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
)
_HINT = ", the host of rank 0 (mpirun -x MASTER_ADDR=HOST; mpiexec -genv MASTER_ADDR HOST)"


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None outside of an MPI launcher, and for MODE=standalone."""
    if values.text(env, "MODE") == "standalone":
        return None
    launcher = next((names for names in _LAUNCHERS if all(values.text(env, name) for name in names)), None)
    if launcher is None:
        _check_bare(env)
        return None
    size, rank, local_size, local_rank = (_number(env, name) for name in launcher)
    for part, whole in ((rank, size), (local_rank, local_size)):
        values.check_below(part, whole)
    if local_size.value > size.value:
        raise values.disagree(local_size, size, "a node has no more ranks than there are")
    of_nodes = values.first_set(env, *_OF_NODES)
    return _node(size, rank, local_size, of_nodes) if of_nodes else _rank(env, size, rank, local_size, local_rank)


def _number(env: Mapping[str, str], name: str) -> Fact[int]:
    return Fact(value=values.number(name, values.text(env, name)), variable=name)


def _node(size: Fact[int], rank: Fact[int], local_size: Fact[int], of_nodes: str) -> JobSettings:
    if local_size.value > 1:
        why = (
            f"processes of the MPI launcher are on this node, and {of_nodes} makes each of them a node: "
            f"start one on each (mpirun --map-by ppr:1:node, mpiexec -ppn 1), or unset {of_nodes} and each is a rank."
        )
        raise values.bad(local_size.variable, local_size.value, why)
    return JobSettings(dialect=NAME, nnodes=size, node_rank=rank, master_hint=_HINT)


def _rank(
    env: Mapping[str, str], size: Fact[int], rank: Fact[int], local_size: Fact[int], local_rank: Fact[int]
) -> JobSettings:
    values.agree(size, values.whole(env, "WORLD_SIZE", least=1), "this is a rank of an MPI launcher")
    values.agree(rank, values.whole(env, "RANK"), "this is a rank of an MPI launcher")
    return JobSettings(
        dialect=NAME,
        nnodes=Fact(value=-(-size.value // local_size.value), variable=size.variable),
        node_rank=Fact(value=rank.value // local_size.value, variable=rank.variable),
        nproc_per_node=Fact(value=local_size.value, variable=local_size.variable),
        master_addr=values.address(env, "MASTER_ADDR"),
        master_port=values.port(env, "MASTER_PORT"),
        distributed=True,
        already_rank=True,
        own=RankSettings(
            rank=rank.value,
            world_size=size.value,
            local_rank=local_rank.value,
            local_world_size=local_size.value,
        ),
        master_hint=_HINT,
    )


def _check_bare(env: Mapping[str, str]) -> None:
    """Refuse a rank of a launcher that sets too few variables: it must not run as a job of one process."""
    bare = values.first_set(env, *_BARE)
    if bare and values.text(env, "PMI_SIZE") != "1" and not values.first_set(env, *_COUNTED_ELSEWHERE):
        raise LaunchError(
            Code.BAD_VALUE,
            f"{values.show(bare, values.text(env, bare))} is of an MPI launcher, which says no more of the job: "
            "set RANK, LOCAL_RANK and WORLD_SIZE for each process, or MODE=standalone to run each on its own.",
        )
