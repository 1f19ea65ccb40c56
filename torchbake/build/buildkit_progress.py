"""BuildKit's progress, as `docker buildx --progress rawjson` reports it."""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchbake.core.cause import cause_of


@dataclass(frozen=True, kw_only=True)
class Step:
    """A finished step: what ran, for how long, and whether the cache had it."""

    name: str
    seconds: float
    cached: bool
    error: str = ""


@dataclass(kw_only=True)
class Progress:
    """What a build has said so far: fed with its output, asked for the step that runs and the log's end."""

    running: dict[str, str] = field(default_factory=dict)
    finished: list[Step] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    _said: dict[str, list[str]] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)
    _partial: dict[tuple[str, int], str] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)

    @property
    def current(self) -> str:
        """The name of the latest step that still runs."""
        return next(reversed(self.running.values()), "")

    @property
    def errors(self) -> list[str]:
        """What failed, without the steps that were only cancelled because of it."""
        errors = [step.error for step in self.finished if step.error]
        return [error for error in errors if "context canceled" not in error] or errors

    @property
    def causes(self) -> list[str]:
        """Why each step failed: what its tool said of it, else BuildKit's words."""
        return [cause_of(self._said.get(digest, ())) or error for digest, error in self._failed.items()] or self.errors

    def tail(self, *, most: int = 15) -> list[str]:
        """The last lines of the step that failed, which tell why; else of everything."""
        failed = [line for digest in [*self._failed][:1] for line in self._said.get(digest, ())]
        return failed[-most:] or self.log[-most:]

    def feed(self, event: dict[str, Any]) -> list[Step]:
        """Take one event; returns the steps that it finished."""
        before = len(self.finished)
        for vertex in event.get("vertexes") or ():
            self._vertex(vertex)
        for entry in event.get("logs") or ():
            self._log(entry)
        return self.finished[before:]

    def _vertex(self, vertex: dict[str, Any]) -> None:
        digest, name = vertex["digest"], vertex.get("name", "")
        if vertex.get("completed") and digest not in self._done:
            self._done.add(digest)
            # Last lines that no newline ended.
            left = [self._partial.pop(key).rstrip() for key in [*self._partial] if key[0] == digest]
            self._keep(digest, [line for line in left if line])
            self.running.pop(digest, None)
            step = Step(
                name=name,
                seconds=_seconds(vertex.get("started"), vertex["completed"]),
                cached=bool(vertex.get("cached")),
                error=vertex.get("error", ""),
            )
            self.finished.append(step)
            if step.error and "context canceled" not in step.error:
                self._failed[digest] = step.error
            self.log.append(f"{name}: {'cached' if step.cached else f'{step.seconds:.1f} s'} {step.error}".rstrip())
        elif vertex.get("started") and digest not in self._done:
            self.running[digest] = name

    def _log(self, entry: dict[str, Any]) -> None:
        try:
            text = base64.b64decode(entry.get("data") or "").decode(errors="replace")
        except binascii.Error:
            text = str(entry.get("data"))
        # Standard output and errors are two streams, cut anywhere: joined, one's words stand within the other's.
        key = (entry["vertex"], int(entry.get("stream") or 0))
        text = self._partial.pop(key, "") + text
        *lines, rest = text.split("\n")
        self._keep(entry["vertex"], [line.rstrip() for line in lines if line.strip()])
        if rest:
            self._partial[key] = rest

    def _keep(self, digest: str, lines: list[str]) -> None:
        self._said.setdefault(digest, []).extend(lines)
        self.log += [f"  {line}" for line in lines]


def events(lines: Iterable[str]) -> Iterator[dict[str, Any] | str]:
    """The JSON events in a stream of lines; a line outside of them (an error of buildx itself) as it is.

    buildx 0.13 spreads an event over many lines, later ones write one a line.
    """
    collected: list[str] = []
    for line in lines:
        if not collected and not line.startswith("{"):
            if line.strip():
                yield line.rstrip()
            continue
        collected.append(line)
        if line.startswith("}") or (len(collected) == 1 and line.rstrip().endswith("}")):
            text, collected = "".join(collected), []
            try:
                yield json.loads(text)
            except ValueError:
                yield text.rstrip()


def _seconds(started: str | None, completed: str) -> float:
    return (_time(completed) - _time(started)).total_seconds() if started else 0.0


def _time(text: str) -> datetime:
    # BuildKit writes nanoseconds; Python's parser takes at most microseconds in 3.10, any number since 3.11.
    return datetime.fromisoformat(text)
