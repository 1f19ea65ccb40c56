"""Compares the libraries behind torch (BLAS, convolution, LAPACK, FFT, sparse) with plain Python."""

import cmath
import math
from collections.abc import Iterator
from itertools import product as product_of
from typing import TYPE_CHECKING

import torch

from .compare import FLOATS, added_in, dot, expect_close, flat, name_of, product, rows_of, signs, steps, unit
from .device import expect_on, facts, open_device
from .verdict import Checks, expect

if TYPE_CHECKING:
    from .cli import PayloadOptions

_BIG = 256
_CHANNELS, _SIDE, _FILTERS, _KERNEL = 3, 9, 4, 3
_MANY = 4000


def check(checks: Checks, options: "PayloadOptions") -> None:
    device = open_device(options.device)
    if device.type == "cuda":
        with checks("gpu"):
            checks.figures |= _gpu(device)
    of_all = {"matmul": _matmul, "conv": _conv, "functions": _functions, "reductions": _reductions}
    for dtype in FLOATS:
        for name, test in of_all.items():
            with checks(f"{name}-{name_of(dtype)}"):
                test(device, dtype)
    for dtype in (torch.float64, torch.float32):
        with checks(f"linalg-{name_of(dtype)}"):
            _linalg(device, dtype)
        with checks(f"fft-{name_of(dtype)}"):
            _fft(device, dtype)
    for name, on_device in (("sparse", _sparse), ("integers", _integers), ("random", _random)):
        with checks(name):
            on_device(device)
    checks.figures |= facts(device)


def _gpu(device: torch.device) -> dict[str, object]:
    """Check that work takes memory of the GPU, and time by the GPU's clock."""
    before = torch.cuda.memory_allocated(device)
    left = torch.ones(2048, 2048, device=device)
    expect(torch.cuda.memory_allocated(device) - before >= left.nbytes, "16 MB were allocated, but not on the GPU")
    left @ left  # the first one also loads the library
    torch.cuda.synchronize(device)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(5):
        result = left @ left
    end.record()
    end.synchronize()
    seconds = start.elapsed_time(end) / 1000
    expect(seconds > 0, "five products took no time on the GPU's clock")
    expect(result.device == device and result[-1, -1].item() == 2048, "the product of ones is not 2048 everywhere")
    return {"gpu-float32-tflops": 5 * 2 * 2048**3 / seconds / 1e12, "gpu-kernels": torch.cuda.get_arch_list()}


def _matmul(device: torch.device, dtype: torch.dtype) -> None:
    """Compare a product with exact sums: in float32 products of multiples of 1/32 are exact, and so are 40 of them.

    Only the stored result is rounded.
    """
    left, right = rows_of(steps(24 * 40, 1), 40), rows_of(steps(40 * 33, 2), 33)
    result = torch.tensor(left, device=device, dtype=dtype) @ torch.tensor(right, device=device, dtype=dtype)
    expect_on(result, device, dtype)
    exact = dtype in (torch.float64, torch.float32)
    # A GPU may add float16 in a few parts that it stores in between.
    sizes = flat(product(*([[abs(value) for value in row] for row in rows] for rows in (left, right))))
    expect_close(result, flat(product(left, right)), [0.0 if exact else 4 * unit(dtype) * size for size in sizes])
    _big_matmul(device, dtype)


def _big_matmul(device: torch.device, dtype: torch.dtype) -> None:
    """Check a product in the blocked kernels. All numbers are whole, so A (B x) = (A B) x must hold exactly."""
    left, right = signs(_BIG * _BIG, 3), signs(_BIG * _BIG, 4)
    shape = (_BIG, _BIG)
    a = torch.tensor(left, dtype=dtype, device=device).reshape(shape)
    b = torch.tensor(right, dtype=dtype, device=device).reshape(shape)
    result = expect_on(a @ b, device, dtype)
    x = [float(3 * place**2 + 1) for place in range(_BIG)]
    expected = _times(rows_of(left, _BIG), _times(rows_of(right, _BIG), x))
    wrong = sum(one != two for one, two in zip(_times(result.double().tolist(), x), expected, strict=True))
    expect(wrong == 0, f"{wrong} of {_BIG} rows of a product of {_BIG} by {_BIG} whole numbers are wrong")


def _times(rows: list[list[float]], vector: list[float]) -> list[float]:
    return [dot(row, vector) for row in rows]


def _convolve(
    image: list[float], weight: list[float], bias: list[float], stride: int, padding: int
) -> Iterator[tuple[float, float]]:
    """Convolve two pictures of 3 x 9 x 9 with four filters of 3 x 3, by the definition.

    Yields each number of the result, and the sum of the magnitudes of its terms.
    """
    places = range(-padding, _SIDE + padding - _KERNEL + 1, stride)
    for picture, (filter_, shift), top, left in product_of(range(2), enumerate(bias), places, places):
        terms = [shift]
        for channel, i, j in product_of(range(_CHANNELS), range(_KERNEL), range(_KERNEL)):
            row, column = top + i, left + j
            if 0 <= row < _SIDE and 0 <= column < _SIDE:
                pixel = image[((picture * _CHANNELS + channel) * _SIDE + row) * _SIDE + column]
                terms.append(pixel * weight[((filter_ * _CHANNELS + channel) * _KERNEL + i) * _KERNEL + j])
        yield math.fsum(terms), math.fsum(map(abs, terms))


def _conv(device: torch.device, dtype: torch.dtype) -> None:
    """Compare convolutions with stride, padding and bias. The bound allows for fast algorithms."""
    image = steps(2 * _CHANNELS * _SIDE**2, 5, per_unit=8)
    weight = steps(_FILTERS * _CHANNELS * _KERNEL**2, 6, per_unit=8)
    bias = steps(_FILTERS, 7)
    x = torch.tensor(image, device=device, dtype=dtype).reshape(2, _CHANNELS, _SIDE, _SIDE)
    w = torch.tensor(weight, device=device, dtype=dtype).reshape(_FILTERS, _CHANNELS, _KERNEL, _KERNEL)
    b = torch.tensor(bias, device=device, dtype=dtype)
    # 27 products and a bias; storing rounds float16 and bfloat16 once, fast algorithms a few times.
    allowed = (4 if dtype in (torch.float16, torch.bfloat16) else 32) * unit(dtype)
    for stride, padding in ((1, 1), (2, 0)):
        result = expect_on(torch.nn.functional.conv2d(x, w, b, stride=stride, padding=padding), device, dtype)
        expected_values, sizes = zip(*_convolve(image, weight, bias, stride, padding), strict=True)
        expect_close(result, expected_values, [allowed * size for size in sizes])


def _functions(device: torch.device, dtype: torch.dtype) -> None:
    """Compare functions with the C library's, within a few roundings.

    On some CPUs torch computes erf by formula 7.1.26 of Abramowitz and Stegun, whose error is absolute: up to 3.8e-7 on
    arm64 in float32, between -4 and 4.
    """
    values = steps(128, 8)
    x = torch.tensor(values, device=device, dtype=dtype)
    for function, reference, absolute in (
        (torch.exp, math.exp, 0), (torch.sin, math.sin, 0), (torch.tanh, math.tanh, 0), (torch.erf, math.erf, 8),
    ):  # fmt: skip
        expected_values = [reference(value) for value in values]
        expect_close(
            expect_on(function(x), device, dtype),
            expected_values,
            [(6 * abs(value) + absolute) * unit(dtype) for value in expected_values],
        )
    pairs = [(value, value + 2) for value in values]
    result = torch.tensor([one for one, _ in pairs], device=device, dtype=dtype) / (x + 2)
    # x + 2 may be rounded in bfloat16, so the quotient is two roundings away.
    expect_close(result, [one / two for one, two in pairs], [3 * unit(dtype) * abs(one / two) for one, two in pairs])


def _reductions(device: torch.device, dtype: torch.dtype) -> None:
    values = steps(_MANY, 9)
    x = torch.tensor(values, device=device, dtype=dtype)
    total, size = math.fsum(values), math.fsum(map(abs, values))
    mean = total / _MANY
    variance = math.fsum((value - mean) ** 2 for value in values) / (_MANY - 1)
    adding = _MANY * added_in(dtype)
    expect_close(expect_on(x.sum(), device, dtype), [total], 2 * unit(dtype) * abs(total) + adding * size)
    expect_close(x.mean(), [mean], 2 * unit(dtype) * abs(mean) + adding * size / _MANY)
    expect_close(x.var(), [variance], (2 * unit(dtype) + 4 * adding) * variance)
    expect(x.max().item() == max(values) and x.argmin().item() == values.index(min(values)), "max or argmin is wrong")
    expect(x.sort().values.double().tolist() == sorted(values), "sort is wrong")
    table = x.reshape(40, 100)
    sums = [math.fsum(row) for row in rows_of(values, 100)]
    expect_close(table.sum(dim=1), sums, [2 * unit(dtype) * abs(one) + 100 * added_in(dtype) * 100 for one in sums])
    powers = [[math.exp(value) for value in row] for row in rows_of(values, 100)]
    shares = [value / math.fsum(row) for row in powers for value in row]
    result = torch.softmax(table, dim=1)
    expect_close(result, shares, [(6 * unit(dtype) + 200 * added_in(dtype)) * share for share in shares])


def _linalg(device: torch.device, dtype: torch.dtype) -> None:
    """Compute backward errors in Python: LAPACK guarantees a small multiple of size times unit."""
    count = 24
    small = 16 * count * unit(dtype)
    rows = [
        [value + (2.0 * count if place == number else 0.0) for place, value in enumerate(row)]
        for number, row in enumerate(rows_of(steps(count * count, 10), count))
    ]  # a heavy diagonal: well conditioned
    a = torch.tensor(rows, device=device, dtype=dtype)
    b = steps(count, 11)
    x = expect_on(torch.linalg.solve(a, torch.tensor(b, device=device, dtype=dtype)), device, dtype)
    expect_close(_times(rows, x.double().tolist()), b, small * 4)
    # The second difference has known eigenvalues, which are also its singular values.
    chain = [[2.0 if i == j else -1.0 if abs(i - j) == 1 else 0.0 for j in range(count)] for i in range(count)]
    laplace = torch.tensor(chain, device=device, dtype=dtype)
    known_names = [2 - 2 * math.cos(math.pi * k / (count + 1)) for k in range(1, count + 1)]
    expect_close(expect_on(torch.linalg.eigvalsh(laplace), device, dtype), known_names, small * 4)
    expect_close(torch.linalg.svdvals(laplace), known_names[::-1], small * 4)
    expect_close(torch.linalg.det(laplace), [count + 1.0], 8 * small * (count + 1))
    factor = expect_on(torch.linalg.cholesky(laplace), device, dtype).double().tolist()
    expect_close(flat(product(factor, list(zip(*factor, strict=True)))), flat(chain), small * 4)
    q, r = (part.double().tolist() for part in torch.linalg.qr(a))
    expect_close(flat(product(q, r)), flat(rows), small * 2 * count)
    unity = [float(i == j) for i in range(count) for j in range(count)]
    expect_close(flat(product(list(zip(*q, strict=True)), q)), unity, small)


def _fft(device: torch.device, dtype: torch.dtype) -> None:
    count = 60  # not a power of two
    values = steps(count, 12)
    result = torch.fft.fft(torch.tensor(values, device=device, dtype=dtype))
    expect_on(result, device)
    turns = [cmath.exp(-2j * cmath.pi * k / count) for k in range(count)]
    expected_values = [sum(value * turns[k * n % count] for n, value in enumerate(values)) for k in range(count)]
    bound = 16 * unit(dtype) * math.fsum(map(abs, values))
    expect_close(result.real, [value.real for value in expected_values], bound)
    expect_close(result.imag, [value.imag for value in expected_values], bound)


def _sparse(device: torch.device) -> None:
    rows = rows_of([value if value > 0.5 else 0.0 for value in steps(30 * 40, 13)], 40)
    right = rows_of(steps(40 * 5, 14), 5)
    left = torch.tensor(rows, device=device).to_sparse()
    result = expect_on(torch.sparse.mm(left, torch.tensor(right, device=device)), device, torch.float32)
    expect_close(result, flat(product(rows, right)), 0.0)  # exact, as in _matmul


def _integers(device: torch.device) -> None:
    """Compare indices, running sums and masks exactly."""
    values = [(7919 * place) % 1009 for place in range(_MANY)]
    x = torch.tensor(values, device=device)
    running = expect_on(x.cumsum(0), device, torch.int64).tolist()
    expect(running[-1] == sum(values) and running[1] == values[0] + values[1], "cumsum is wrong")
    order = torch.arange(_MANY - 1, -1, -1, device=device)
    expect(x[order].tolist() == values[::-1] and x.gather(0, order).tolist() == values[::-1], "indexing is wrong")
    counts = torch.zeros(1009, dtype=torch.int64, device=device).scatter_add_(0, x, torch.ones_like(x))
    expect(counts.tolist() == [values.count(number) for number in range(1009)], "scatter_add_ is wrong")
    expect(x[x > 500].tolist() == [value for value in values if value > 500], "a mask is wrong")


def _random(device: torch.device) -> None:
    """Check that a seed fixes the numbers of the generator, and their mean and variance."""
    generators = (torch.Generator(device).manual_seed(seed) for seed in (1, 1, 2))
    draw = [torch.randn(20000, generator=generator, device=device) for generator in generators]
    expect_on(draw[0], device, torch.float32)
    expect(torch.equal(draw[0], draw[1]), "one seed gave two results")
    expect(not torch.equal(draw[0], draw[2]), "two seeds gave one result")
    # Seven standard errors: one draw in 10^11 would be outside, and the seeds are fixed.
    expect(abs(draw[0].mean().item()) < 7 / math.sqrt(20000), "the mean of a normal draw is far from 0")
    expect(abs(draw[0].var().item() - 1) < 7 * math.sqrt(2 / 20000), "the variance of a normal draw is far from 1")
