"""Amounts mean what Kubernetes means by them."""

import pytest

from torchbake.jobs.quantities import bytes_of, cpus_of, mebibytes_of


@pytest.mark.parametrize(("text", "amount"), [("512", 512), ("2Gi", 2 * 1024**3), ("1k", 1000), ("3Mi", 3 * 1024**2)])
def test_a_quantity_in_bytes(text: str, amount: int) -> None:
    assert bytes_of(text) == amount


@pytest.mark.parametrize(("text", "amount"), [("8Gi", 8192), ("1", 1), ("1G", 954)])
def test_mebibytes_are_rounded_up(text: str, amount: int) -> None:
    assert mebibytes_of(text) == amount


@pytest.mark.parametrize(("text", "count"), [("4", 4), ("500m", 0.5), ("1.5", 1.5)])
def test_cpus(text: str, count: float) -> None:
    assert cpus_of(text) == count
