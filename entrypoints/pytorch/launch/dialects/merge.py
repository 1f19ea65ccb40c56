"""Puts what several dialects say together: the same twice is fine, a difference is a conflict, no one wins silently."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from .settings import Fact, Settings
from .values import agree

T = TypeVar("T")


def merge(detected: Sequence[Settings]) -> Settings:
    """One Settings out of all. Raises LaunchError (CONFLICT) that names the two variables that differ."""
    return Settings(
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
    """What is said outright, in agreement; else the first guess."""
    known = [fact for fact in facts if fact]
    certain = [fact for fact in known if not fact.guess]
    for other in certain[1:]:
        agree(certain[0], other)
    return next(iter(certain or known), None)
