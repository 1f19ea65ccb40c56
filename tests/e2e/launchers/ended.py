"""A job that a launcher has ended."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Its exit code, all that its nodes said, and the seconds from its submission to its end."""

    code: int
    output: str
    seconds: float

    def find(self) -> list[dict[str, Any]]:
        """What each rank printed of itself, by rank; launchers write who said it before a line."""
        lines = [line[line.index("{") :] for line in self.output.splitlines() if '{"rank"' in line]
        return sorted((json.loads(line) for line in lines), key=lambda matches: int(matches["rank"]))
