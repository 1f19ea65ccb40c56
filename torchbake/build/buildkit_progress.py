"""The progress of a build, by the events of `docker buildx --progress rawjson`."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchbake.core.cause import cause_of
from torchbake.ui.progress_board import Board


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """A finished step. ``cached`` is True if its result was in the build cache."""

    name: str
    seconds: float
    cached: bool
    error: str = ""


@dataclass(kw_only=True)
class Progress:
    """The state of a build by its events so far: running and finished steps, and the log."""

    running: dict[str, str] = field(default_factory=dict)
    finished: list[BuildStep] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    _output: dict[str, list[str]] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)
    _partial: dict[tuple[str, int], str] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)

    @property
    def current(self) -> str:
        """The name of the running step that began last."""
        return next(reversed(self.running.values()), "")

    @property
    def causes(self) -> list[str]:
        """The reason of each failure, by the step's output, else BuildKit's message.

        A step that another failure cancelled has none. There is no reason at all if no step failed by itself: then the
        last message of the command has the reason.
        """
        return [cause_of(self._output.get(digest, ())) or error for digest, error in self._failed.items()]

    def tail(self, *, most: int = 15) -> list[str]:
        """Return the last lines of the first failed step, or else of the log."""
        failed = [line for digest in [*self._failed][:1] for line in self._output.get(digest, ())]
        return failed[-most:] or self.log[-most:]

    def feed(self, event: dict[str, Any]) -> list[BuildStep]:
        """Take one event, and return the steps that it finished."""
        before = len(self.finished)
        for vertex in event.get("vertexes") or ():
            self._vertex(vertex)
        for entry in event.get("logs") or ():
            self._log(entry)
        return self.finished[before:]

    def _vertex(self, vertex: dict[str, Any]) -> None:
        digest, name = vertex["digest"], vertex.get("name", "")
        if vertex.get("completed") and digest not in self._finished:
            self._finished.add(digest)
            # Last lines without a newline.
            left = [self._partial.pop(key).rstrip() for key in [*self._partial] if key[0] == digest]
            self._keep(digest, [line for line in left if line])
            self.running.pop(digest, None)
            started, completed = vertex.get("started"), datetime.fromisoformat(vertex["completed"])
            seconds = (completed - datetime.fromisoformat(started)).total_seconds() if started else 0.0
            error, cached = vertex.get("error", ""), bool(vertex.get("cached"))
            step = BuildStep(name=name, seconds=seconds, cached=cached, error=error)
            self.finished.append(step)
            if step.error and "context canceled" not in step.error:
                self._failed[digest] = step.error
            self.log.append(f"{name}: {'cached' if step.cached else f'{step.seconds:.1f} s'} {step.error}".rstrip())
        elif vertex.get("started") and digest not in self._finished:
            self.running[digest] = name

    def _log(self, entry: dict[str, Any]) -> None:
        try:
            text = base64.b64decode(entry.get("data") or "").decode(errors="replace")
        except binascii.Error:
            text = str(entry.get("data"))
        # Events contain parts of lines, so the lines of stdout and stderr are joined separately.
        key = (entry["vertex"], int(entry.get("stream") or 0))
        text = self._partial.pop(key, "") + text
        *lines, rest = text.split("\n")
        self._keep(entry["vertex"], [line.rstrip() for line in lines if line.strip()])
        if rest:
            self._partial[key] = rest

    def _keep(self, digest: str, lines: list[str]) -> None:
        self._output.setdefault(digest, []).extend(lines)
        self.log += [f"  {line}" for line in lines]


def events(lines: Iterable[str]) -> Iterator[dict[str, Any] | str]:
    """Yield the JSON events of buildx's output, and each other line, such as an error of buildx itself, as text.

    buildx 0.13 writes an event on many lines, and later versions write it on one.
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


def shown_on(board: Board, name: str) -> Callable[[Progress, Iterable[BuildStep]], None]:
    """Return a function that shows the running step of the image ``name`` on a board, and logs finished steps."""

    def show(progress: Progress, finished: Iterable[BuildStep]) -> None:
        board.look(name, short_name(progress.current))
        for step in finished:
            if not step.cached:
                board.log(name, short_name(step.name), step.seconds)

    return show


def short_name(name: str) -> str:
    """Return a step's name without target and mounts, cut to 80 characters."""
    name = re.sub(r"^\[\S+ (?=(?!\d+/\d+\])\S+( +\d+/\d+)?\])", "[", name)
    name = re.sub(r"--(mount|from|chmod)=\S+\s*", "", name)
    return name if len(name) <= 80 else name[:79] + "…"
