"""A job that a launcher has ended."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Its exit code, all that its nodes said, and the seconds from its submission to its end."""

    code: int
    said: str
    seconds: float

    def found(self) -> list[dict[str, Any]]:
        """What each rank printed of itself, by rank; launchers write who said it before a line."""
        lines = [line[line.index("{") :] for line in self.said.splitlines() if '{"rank"' in line]
        return sorted((json.loads(line) for line in lines), key=lambda found: int(found["rank"]))
