"""A job that a launcher has ended."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A job's exit code, the output of all nodes, the seconds to its end, and those to each line of stdout."""

    code: int
    output: str
    seconds: float
    lines: tuple[tuple[float, str], ...] = ()

    def seconds_to(self, text: str) -> float:
        """Return the seconds from submission to the first line of stdout with a text."""
        return next(seconds for seconds, line in self.lines if text in line)

    def find(self) -> list[dict[str, Any]]:
        """Return the JSON line of each rank, sorted by rank; a launcher may prefix each line with its source."""
        lines = [line[line.index("{") :] for line in self.output.splitlines() if '{"rank"' in line]
        return sorted((json.loads(line) for line in lines), key=lambda matches: int(matches["rank"]))
