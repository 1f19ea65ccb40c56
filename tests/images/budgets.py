"""Size limits of images: the figures of the last release, kept in budgets.toml, and the growth that is allowed."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("budgets.toml")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that an image may have; ``released`` are the figures of its last release, if there was one."""

    megabytes: float
    layers: int
    released: dict[str, Any] | None


def budget_of(name: str, group: str, *, path: Path = FILE) -> Budget | None:
    """An image's: by its last release, else the ceiling of its group (``cpu-runtime``); None where there is neither."""
    data = tomllib.loads(path.read_text())
    growth, released = data["growth"], data.get("released", {}).get(name)
    if released:
        most = released["megabytes"] * (1 + growth["percent"] / 100) + growth["megabytes"]
        return Budget(megabytes=round(most, 1), layers=released["layers"] + growth["layers"], released=released)
    ceiling = data["ceilings"].get(group)
    return Budget(megabytes=ceiling["megabytes"], layers=ceiling["layers"], released=None) if ceiling else None
