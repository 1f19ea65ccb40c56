"""The settings of a job that a dialect reads: facts, each with the variable that it came from."""

from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Fact(Generic[T]):
    """A value and the variable that said it.

    A ``guess`` is what a launcher lets us conclude but does not say (a GPU count, a first host): it gives way to
    what another variable does say, without a conflict.
    """

    value: T
    variable: str
    guess: bool = False


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One process of the job, as a launcher that knows nothing of torch's variables has started it."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @property
    def variables(self) -> dict[str, str]:
        return {name.upper(): str(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that one dialect says of the job; None where it says nothing."""

    dialect: str
    nnodes: Fact[int] | None = None
    node_rank: Fact[int] | None = None
    nproc_per_node: Fact[int | str] | None = None  # a number, or auto, gpu, cpu
    world_size: Fact[int] | None = None
    master_addr: Fact[str] | None = None
    master_port: Fact[int] | None = None
    elastic: Fact[tuple[int, int]] | None = None
    distributed: bool = False  # the launcher starts nothing but distributed jobs, be it with one process
    master_hint: str = ""  # what MASTER_ADDR would be here, for the one who must set it
    already_rank: bool = False  # we are inside a rank, and start no other
    own: Rank | None = None  # that rank, where its environment is not complete
