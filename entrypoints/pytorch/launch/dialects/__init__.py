"""The launchers and their variables: one module of pure functions each, all with the same `read`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from . import bitnami, indexed_job, mpi, native, openpai, pytorchjob, slurm, torchrun, trainjob, values, worker
from .settings import Fact, JobSettings, RankSettings

__all__ = ["DIALECTS", "TAKES", "Dialect", "Fact", "JobSettings", "RankSettings", "detect", "merge", "values"]

T = TypeVar("T")


class Dialect(Protocol):
    """The interface of each launcher's module."""

    NAME: str
    VARIABLES: tuple[str, ...]

    def read(self, env: Mapping[str, str]) -> JobSettings | None:
        """Read the launcher's settings; None if it has not started `run`. Raises LaunchError for a wrong value."""


# In the order of recognition: the more particular before the more general.
DIALECTS: tuple[Dialect, ...] = (
    *(worker, mpi, pytorchjob, trainjob, torchrun, slurm, openpai, indexed_job, bitnami, native),
)

# Variables to which a recognised dialect gives another meaning: the dialects after it do not see them.
TAKES: Mapping[str, tuple[str, ...]] = {module.NAME: module.TAKES for module in (mpi, pytorchjob, trainjob, bitnami)}


def detect(env: Mapping[str, str]) -> tuple[JobSettings, ...]:
    """Read the settings of each launcher that is recognised, the user's first; inside a rank only the rank's."""
    left: dict[str, str] = dict(env)
    detected: list[JobSettings] = []
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


def merge(detected: Sequence[JobSettings]) -> JobSettings:
    """Merge the settings of several dialects. Raises LaunchError (CONFLICT) if two variables differ."""
    return JobSettings(
        dialect=", ".join(each.dialect for each in detected),
        nnodes=_one(each.nnodes for each in detected),
        node_rank=_one(each.node_rank for each in detected),
        nproc_per_node=_one(each.nproc_per_node for each in detected),
        world_size=_one(each.world_size for each in detected),
        master_addr=_one(each.master_addr for each in detected),
        master_port=_one(each.master_port for each in detected),
        elastic=_one(each.elastic for each in detected),
        distributed=any(each.distributed for each in detected),
        already_rank=any(each.already_rank for each in detected),
        own=next((each.own for each in detected if each.own), None),
        master_hint="".join(each.master_hint for each in detected),
    )


def _one(facts: Iterable[Fact[T] | None]) -> Fact[T] | None:
    """Return the value on which all certain facts agree; without one the first guess."""
    facts_present = [fact for fact in facts if fact]
    certain = [fact for fact in facts_present if not fact.guess]
    for other in certain[1:]:
        values.agree(certain[0], other)
    return next(iter(certain or facts_present), None)
