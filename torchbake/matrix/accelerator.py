"""What an image computes on: ``cpu``, or CUDA of one exact minor version (``cuda12.8``)."""

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Literal

_CUDA = re.compile(r"cuda(?P<major>[1-9][0-9]*)\.(?P<minor>[0-9]+)")


@total_ordering
@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """``version`` is (major, minor) of CUDA; empty for the CPU. Ordered as versions: 12.9 < 12.10."""

    kind: Literal["cpu", "cuda"]
    version: tuple[int, ...] = ()

    @property
    def cuda(self) -> str | None:
        """``"12.8"``, or None on the CPU."""
        return ".".join(map(str, self.version)) or None

    @property
    def family(self) -> str:
        """``cpu`` or, for every CUDA of one major, ``cuda12``."""
        return f"cuda{self.version[0]}" if self.version else "cpu"

    @property
    def names(self) -> tuple[str, ...]:
        """Every word that selects it, widest first: ``cuda``, ``cuda12``, ``cuda12.8``."""
        return ("cuda", self.family, str(self)) if self.version else ("cpu",)

    def __str__(self) -> str:
        return f"cuda{self.cuda}" if self.version else "cpu"

    def __lt__(self, other: "Accelerator") -> bool:
        return (self.kind == "cuda", self.version) < (other.kind == "cuda", other.version)


def parse_accelerator(text: str) -> Accelerator:
    """Raises ValueError for anything but ``cpu`` and ``cuda<major>.<minor>``."""
    if text == "cpu":
        return Accelerator(kind="cpu")
    match = _CUDA.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not an accelerator; write cpu, or CUDA's major.minor such as cuda12.8")
    return Accelerator(kind="cuda", version=(int(match["major"]), int(match["minor"])))
