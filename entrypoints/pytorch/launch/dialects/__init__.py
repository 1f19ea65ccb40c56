"""Launchers, and what each says of the job: one pure adapter each, all with the same `read`."""

from collections.abc import Mapping
from typing import Protocol

from . import bitnami, indexed_job, mpi, native, openpai, pytorchjob, slurm, torchrun, trainjob, values, worker
from .merge import merge
from .settings import Fact, Rank, Settings

__all__ = ["DIALECTS", "TAKES", "Dialect", "Fact", "Rank", "Settings", "detect", "merge", "values"]


class Dialect(Protocol):
    """What a module of this package offers."""

    NAME: str
    VARIABLES: tuple[str, ...]

    def read(self, env: Mapping[str, str]) -> Settings | None:
        """What this launcher says; None: it did not start us. Raises LaunchError for a value that cannot be."""


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


def detect(env: Mapping[str, str]) -> tuple[Settings, ...]:
    """The settings of each dialect that recognises this environment, the user's first; inside a rank those alone."""
    left: dict[str, str] = dict(env)
    detected: list[Settings] = []
    for dialect in DIALECTS:
        settings = dialect.read(left)
        if settings is None:
            continue
        if settings.already_rank:
            return (settings,)
        detected.insert(0 if dialect.NAME == native.NAME else len(detected), settings)
        for variable in TAKES.get(dialect.NAME, ()):
            left.pop(variable, None)
    return tuple(detected)
