"""Compares what torch computed with references of plain Python, with bounds that come from rounding errors.

Inputs are multiples of a small power of two, exact in every dtype: so the reference needs nothing of torch, not even a
conversion. `unit` is the largest relative error of rounding once to a dtype; float16 and bfloat16 are multiplied and
added in float32 by every backend, and rounded when they are stored.
"""

import math
import random
from collections.abc import Iterable, Sequence

import torch

from .verdict import expect

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def unit(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number of the dtype."""
    return float(torch.finfo(dtype).eps) / 2


def added_in(dtype: torch.dtype) -> float:
    """The unit of the dtype that sums of this dtype are kept in meanwhile."""
    return min(unit(dtype), unit(torch.float32))


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def steps(count: int, seed: int, *, per_unit: int = 32) -> list[float]:
    """``count`` numbers from -1 to 1 in steps of ``1 / per_unit``: exact in every dtype up to 128 steps a unit."""
    source = random.Random(seed)
    return [source.randint(-per_unit, per_unit) / per_unit for _ in range(count)]


def signs(count: int, seed: int) -> list[int]:
    """``count`` numbers of -1, 0 and 1: sums of a few hundred products of them are exact in every dtype."""
    return random.Random(seed).choices((-1, 0, 1), k=count)


def expect_close(
    found: torch.Tensor | Sequence[float], wanted: Sequence[float], allowed: Sequence[float] | float
) -> None:
    """Raise Wrong unless every number is at most its allowed error away; not-a-number is never close."""
    if isinstance(found, torch.Tensor):
        found = found.detach().cpu().double().reshape(-1).tolist()
    values = [float(value) for value in found]
    expect(len(values) == len(wanted), f"{len(values)} numbers instead of {len(wanted)}")
    bounds: Iterable[float] = [allowed] * len(values) if isinstance(allowed, float | int) else allowed
    for place, (value, reference, bound) in enumerate(zip(values, wanted, bounds, strict=True)):
        near = math.isfinite(value) and abs(value - reference) <= bound
        expect(near, f"number {place} is {value:.9g}, the reference is {reference:.9g}, allowed is {bound:.2g}")


def expect_same(found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    """Raise Wrong unless both have the same bits, in shape and type as well."""
    expect(found.dtype == wanted.dtype and found.shape == wanted.shape, f"{what}: shape or type differ")
    expect(torch.equal(found, wanted), f"{what}: values differ")


def product(left: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> list[list[float]]:
    """The matrix product, each number rounded once."""
    columns = list(zip(*right, strict=True))
    return [[math.fsum(map(float.__mul__, row, column)) for column in columns] for row in left]


def rows_of(values: Sequence[float], width: int) -> list[list[float]]:
    return [[float(value) for value in values[at : at + width]] for at in range(0, len(values), width)]


def magnitudes(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[abs(value) for value in row] for row in rows]


def flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [value for row in rows for value in row]
