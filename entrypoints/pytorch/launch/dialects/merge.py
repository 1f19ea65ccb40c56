"""Puts what several dialects say together: the same twice is fine, a difference is a conflict, no one wins silently."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from .said import Fact, Said
from .values import agree

T = TypeVar("T")


def merge(heard: Sequence[Said]) -> Said:
    """One Said of all. Raises Refusal (CONFLICT) that names the two variables that differ."""
    return Said(
        dialect=", ".join(said.dialect for said in heard),
        nnodes=_one(said.nnodes for said in heard),
        node_rank=_one(said.node_rank for said in heard),
        nproc_per_node=_one(said.nproc_per_node for said in heard),
        world_size=_one(said.world_size for said in heard),
        master_addr=_one(said.master_addr for said in heard),
        master_port=_one(said.master_port for said in heard),
        elastic=_one(said.elastic for said in heard),
        distributed=any(said.distributed for said in heard),
        already_rank=any(said.already_rank for said in heard),
        own=next((said.own for said in heard if said.own), None),
        master_hint="".join(said.master_hint for said in heard),
    )


def _one(facts: Iterable[Fact[T] | None]) -> Fact[T] | None:
    """What is said outright, in agreement; else the first guess."""
    there = [fact for fact in facts if fact]
    said = [fact for fact in there if not fact.guess]
    for other in said[1:]:
        agree(said[0], other)
    return next(iter(said or there), None)
