"""Launchers, and what each says of the job: one pure adapter each, all with the same `read`."""

from collections.abc import Mapping
from typing import Protocol

from . import bitnami, indexed_job, mpi, native, openpai, pytorchjob, slurm, torchrun, trainjob, values, worker
from .merge import merge
from .said import Fact, Rank, Said

__all__ = ["DIALECTS", "TAKES", "Dialect", "Fact", "Rank", "Said", "listen", "merge", "values"]


class Dialect(Protocol):
    """What a module of this package offers."""

    NAME: str
    VARIABLES: tuple[str, ...]

    def read(self, env: Mapping[str, str]) -> Said | None:
        """What this launcher says; None: it did not start us. Raises Refusal for a value that cannot be."""


# In the order of recognition: the more particular before the more general.
DIALECTS: tuple[Dialect, ...] = (
    worker,
    mpi,
    pytorchjob,
    trainjob,
    torchrun,
    slurm,
    openpai,
    indexed_job,
    bitnami,
    native,
)

# Variables that a recognised dialect reads in its own meaning: the dialects after it do not see them.
TAKES: Mapping[str, tuple[str, ...]] = {module.NAME: module.TAKES for module in (mpi, pytorchjob, trainjob, bitnami)}


def listen(env: Mapping[str, str]) -> tuple[Said, ...]:
    """What all dialects say that recognise this environment, the user's own first. Inside a rank only that counts."""
    left: dict[str, str] = dict(env)
    heard: list[Said] = []
    for dialect in DIALECTS:
        said = dialect.read(left)
        if said is None:
            continue
        if said.already_rank:
            return (said,)
        heard.insert(0 if dialect.NAME == native.NAME else len(heard), said)
        for variable in TAKES.get(dialect.NAME, ()):
            left.pop(variable, None)
    return tuple(heard)
