"""Quantities of Kubernetes in the units of other launchers. Pure."""

import math
import re

_UNITS = {"": 1} | {unit: 1000 ** (place + 1) for place, unit in enumerate("kMGT")}
_UNITS |= {f"{unit}i": 1024 ** (place + 1) for place, unit in enumerate("KMGT")}


def bytes_of(quantity: str) -> int:
    """`2Gi` in bytes."""
    number = re.match("[0-9]+", quantity)[0]  # type: ignore[index] # the model has checked the form
    factor: int = _UNITS[quantity.removeprefix(number)]
    return int(number) * factor


def mebibytes_of(quantity: str) -> int:
    """`2Gi` in MiB, rounded up."""
    return math.ceil(bytes_of(quantity) / 1024**2)


def cpus_of(quantity: str) -> float:
    """`500m` and `4` in CPUs."""
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)
