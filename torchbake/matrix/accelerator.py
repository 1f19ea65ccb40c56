"""The accelerator of an image: ``cpu``, or CUDA of one minor version (``cuda12.8``)."""

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Literal

_CUDA = re.compile(r"cuda(?P<major>[1-9][0-9]*)\.(?P<minor>[0-9]+)")


@total_ordering
@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """An accelerator, ordered by version: 12.9 < 12.10. ``version`` is CUDA's (major, minor), or empty for the CPU."""

    kind: Literal["cpu", "cuda"]
    version: tuple[int, ...] = ()

    @property
    def cuda(self) -> str | None:
        """``"12.8"``, or None on the CPU."""
        return ".".join(map(str, self.version)) or None

    @property
    def family(self) -> str:
        """``cpu``, or the major version of CUDA: ``cuda12``."""
        return f"cuda{self.version[0]}" if self.version else "cpu"

    @property
    def names(self) -> tuple[str, ...]:
        """Every selector of it, widest first: ``cuda``, ``cuda12``, ``cuda12.8``."""
        return ("cuda", self.family, str(self)) if self.version else ("cpu",)

    def __str__(self) -> str:
        return f"cuda{self.cuda}" if self.version else "cpu"

    def __lt__(self, other: "Accelerator") -> bool:
        return (self.kind == "cuda", self.version) < (other.kind == "cuda", other.version)


def parse_accelerator(text: str) -> Accelerator:
    """Parse ``cpu`` or ``cuda<major>.<minor>``. Raises ValueError for any other text."""
    if text == "cpu":
        return Accelerator(kind="cpu")
    match = _CUDA.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not an accelerator; write cpu, or CUDA's major.minor such as cuda12.8")
    return Accelerator(kind="cuda", version=(int(match["major"]), int(match["minor"])))
