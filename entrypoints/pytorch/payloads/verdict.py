"""What a payload says: checks with names and times, one JSON line, and an exit code."""

import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

_REASONS_SHOWN = 3

Tell = Callable[[Mapping[str, Any]], None]


class Outcome(str, Enum):  # noqa: UP042 - StrEnum is of Python 3.11, and hosts may have 3.10
    """How a payload, or all of them, ended. What did not run has not passed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not-run"

    @property
    def exit_code(self) -> int:
        return {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.NOT_RUN: 77}[self]


class NotRun(Exception):  # noqa: N818 - it is no error
    """Ends a payload, or one check of it, that cannot run here; the message says why, and what would help."""


class Wrong(Exception):  # noqa: N818 - it is a finding, not an error of ours
    """Ends a check: what was computed is not what it must be."""


def expect(condition: bool, sentence: str) -> None:
    """Raise Wrong with ``sentence`` unless ``condition``."""
    if not condition:
        raise Wrong(sentence)


@dataclass(frozen=True)
class Verdict:
    """How one payload ended."""

    payload: str
    device: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    checks: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """One line of ASCII that every JSON parser reads."""
        values = {
            "payload": self.payload,
            "device": self.device,
            "verdict": self.outcome.value,
            "reason": self.reason,
            "seconds": self.seconds,
            "checks": self.checks,
            "figures": self.figures,
        }
        return json.dumps(_plain(values), allow_nan=False)


def outcome_of_all(outcomes: Iterable[Outcome]) -> Outcome:
    """Failed when any failed; not-run when none passed; else passed."""
    seen = set(outcomes)
    if Outcome.FAILED in seen:
        return Outcome.FAILED
    return Outcome.PASSED if Outcome.PASSED in seen else Outcome.NOT_RUN


def said(error: BaseException) -> str:
    """An error in one short line."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:300]}" if words else type(error).__name__


def reason_of(failures: list[str]) -> str:
    """The first failures in one line, and how many more there are."""
    more = len(failures) - _REASONS_SHOWN
    shown = failures[:_REASONS_SHOWN] + ([f"and {more} more"] if more > 0 else [])
    return "; ".join(shown)


class Checks:
    """Runs the named checks of a payload, and keeps times, failures and figures.

    A check that fails does not end the payload: the others still run. ``tell`` hears each check begin and end, so
    that a process that watches this one knows where it crashed or hung. When ``together``, ranks depend on each other:
    a wrong value still goes on, so that all ranks stay in step, but an error ends the payload.
    """

    def __init__(self, tell: Tell = lambda event: None, *, together: bool = False) -> None:
        self._tell = tell
        self.together = together
        self.seconds: dict[str, float] = {}
        self.failures: list[str] = []
        self.not_run: dict[str, str] = {}
        self.figures: dict[str, Any] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the block as the check ``name``; Wrong and NotRun end only the block."""
        self._tell({"begin": name})
        start = time.perf_counter()
        try:
            yield
        except NotRun as reason:
            self.not_run[name] = str(reason)
            self._tell({"end": name})
            return
        except Exception as error:
            wrong = isinstance(error, Wrong)
            self.failures.append(f"{name}: {error if wrong else said(error)}")
            if not wrong:
                traceback.print_exc(file=sys.stderr)
                if self.together:
                    raise
        self.seconds[name] = time.perf_counter() - start
        self._tell({"end": name, "seconds": self.seconds[name]})

    def verdict(self, payload: str, device: str, seconds: float) -> Verdict:
        """What all checks together say. A payload that checked nothing has not passed."""
        failures = self.failures
        if not failures and not self.seconds:
            failures = ["no check ran"]
        figures = {**self.figures, "not-run": self.not_run} if self.not_run else self.figures
        return Verdict(
            payload=payload,
            device=device,
            outcome=Outcome.FAILED if failures else Outcome.PASSED,
            reason=reason_of(failures),
            seconds=seconds,
            checks=self.seconds,
            figures=figures,
        )


def _plain(value: Any) -> Any:
    """What JSON can say: numbers of four digits are enough for people, and infinities have no number there."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, float):
        rounded = float(f"{value:.4g}")  # the largest floats round up to infinity
        return rounded if math.isfinite(rounded) else str(value)
    return str(value)
