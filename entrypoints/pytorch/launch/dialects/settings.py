"""The settings of a job that a dialect reads, each with the variable that holds it."""

from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Fact(Generic[T]):
    """A value and its variable.

    A ``guess`` is derived from a launcher's variables, such as a GPU count or a first host. A value that another
    variable holds replaces it without a conflict.
    """

    value: T
    variable: str
    guess: bool = False


@dataclass(frozen=True, kw_only=True)
class RankSettings:
    """A rank that a launcher without torch's variables has started."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @property
    def variables(self) -> dict[str, str]:
        return {name.upper(): str(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The settings of a job in one dialect; None where it sets nothing."""

    dialect: str
    nnodes: Fact[int] | None = None
    node_rank: Fact[int] | None = None
    nproc_per_node: Fact[int | str] | None = None  # a number, or auto, gpu, cpu
    world_size: Fact[int] | None = None
    master_addr: Fact[str] | None = None
    master_port: Fact[int] | None = None
    elastic: Fact[tuple[int, int]] | None = None
    distributed: bool = False  # The launcher starts only distributed jobs, even with one process.
    master_hint: str = ""  # The right MASTER_ADDR for an error message.
    already_rank: bool = False  # This process is a rank, and starts no others.
    own: RankSettings | None = None  # That rank, if torch's variables are not all set.
