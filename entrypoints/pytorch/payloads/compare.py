"""Comparisons of torch's results with references of plain Python, within bounds from rounding errors.

Inputs are multiples of a small power of two, which are exact in every dtype. So the reference does not need torch, not
even for a conversion. `unit` is the largest relative error of one rounding to a dtype. Every backend multiplies and
adds float16 and bfloat16 in float32, and rounds when it stores the result.
"""

import math
import random
from collections.abc import Iterable, Sequence
from itertools import chain

import torch

from .verdict import expect

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def unit(dtype: torch.dtype) -> float:
    """Return half the distance from 1 to the next number of the dtype."""
    return float(torch.finfo(dtype).eps) / 2


def added_in(dtype: torch.dtype) -> float:
    """Return the unit of the dtype in which sums of this dtype are accumulated."""
    return min(unit(dtype), unit(torch.float32))


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def steps(count: int, seed: int, *, per_unit: int = 32) -> list[float]:
    """Draw ``count`` numbers from -1 to 1 in steps of ``1 / per_unit``: exact in every dtype up to 128 steps a unit."""
    source = random.Random(seed)
    return [source.randint(-per_unit, per_unit) / per_unit for _ in range(count)]


def signs(count: int, seed: int) -> list[int]:
    """Draw ``count`` numbers of -1, 0 and 1: sums of a few hundred of their products are exact in every dtype."""
    return random.Random(seed).choices((-1, 0, 1), k=count)


def expect_close(
    actual: torch.Tensor | Sequence[float], expected: Sequence[float], tolerance: Sequence[float] | float
) -> None:
    """Raise Wrong unless every number is within its allowed error of the reference; NaN never is."""
    if isinstance(actual, torch.Tensor):
        actual = actual.detach().cpu().double().reshape(-1).tolist()
    values = [float(value) for value in actual]
    expect(len(values) == len(expected), f"{len(values)} numbers instead of {len(expected)}")
    bounds: Iterable[float] = [tolerance] * len(values) if isinstance(tolerance, float | int) else tolerance
    for place, (value, reference, bound) in enumerate(zip(values, expected, bounds, strict=True)):
        near = math.isfinite(value) and abs(value - reference) <= bound
        expect(near, f"number {place} is {value:.9g}, the reference is {reference:.9g}, allowed is {bound:.2g}")


def expect_same(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Raise Wrong unless both have the same bits, shape and type."""
    expect(actual.dtype == expected.dtype and actual.shape == expected.shape, f"{what}: shape or type differ")
    expect(torch.equal(actual, expected), f"{what}: values differ")


def product(left: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the matrix product, each number rounded once."""
    columns = list(zip(*right, strict=True))
    return [[dot(row, column) for column in columns] for row in left]


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the scalar product, rounded once."""
    return math.fsum(map(float.__mul__, left, right))


def rows_of(values: Sequence[float], width: int) -> list[list[float]]:
    return [[float(value) for value in values[at : at + width]] for at in range(0, len(values), width)]


def flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [*chain.from_iterable(rows)]
