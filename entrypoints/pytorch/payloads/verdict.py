"""The verdict of a payload: checks with names and times, one JSON line, and an exit code."""

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


class PayloadOutcome(str, Enum):  # noqa: UP042 - StrEnum is of Python 3.11, and hosts may have 3.10
    """The outcome of one or all payloads. A payload that did not run has not passed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not-run"

    @property
    def exit_code(self) -> int:
        return {PayloadOutcome.PASSED: 0, PayloadOutcome.FAILED: 1, PayloadOutcome.NOT_RUN: 77}[self]


class NotRun(Exception):  # noqa: N818 - it is no error
    """Ends a payload, or one of its checks, that cannot run here; the message has the reason and the next step."""


class Wrong(Exception):  # noqa: N818 - it is a finding, not an error of ours
    """Ends a check with a wrong result."""


def expect(condition: bool, sentence: str) -> None:
    """Raise Wrong with ``sentence`` unless ``condition``."""
    if not condition:
        raise Wrong(sentence)


@dataclass(frozen=True)
class PayloadVerdict:
    """How one payload ended."""

    payload: str
    device: str
    outcome: PayloadOutcome
    reason: str = ""
    seconds: float = 0.0
    checks: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Return the verdict as one line of JSON in ASCII."""
        renamed = {"outcome": "verdict"}
        values = {renamed.get(name, name): value for name, value in vars(self).items()}
        return json.dumps(_plain({**values, "verdict": self.outcome.value}), allow_nan=False)


def outcome_of_all(outcomes: Iterable[PayloadOutcome]) -> PayloadOutcome:
    """Return failed if any payload failed, else passed if any passed, else not-run."""
    kinds = set(outcomes)
    if PayloadOutcome.FAILED in kinds:
        return PayloadOutcome.FAILED
    return PayloadOutcome.PASSED if PayloadOutcome.PASSED in kinds else PayloadOutcome.NOT_RUN


def one_line(error: BaseException) -> str:
    """Return an error as one short line."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:300]}" if words else type(error).__name__


def reason_of(failures: list[str]) -> str:
    """Return the first failures in one line, and the number of the others."""
    more = len(failures) - _REASONS_SHOWN
    rows = failures[:_REASONS_SHOWN] + ([f"and {more} more"] if more > 0 else [])
    return "; ".join(rows)


class Checks:
    """Runs the named checks of a payload, and keeps times, failures and figures.

    A failed check does not end the payload. The function ``tell`` is called at the begin and end of each check, so that
    the parent process knows the place of a crash or a hang. With ``together``, ranks depend on each other: after a
    wrong value the payload continues, so that all ranks stay in step, but an error ends it.
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
        """Run and time the block as the check ``name``; Wrong and NotRun end only the block."""
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
            self.failures.append(f"{name}: {error if wrong else one_line(error)}")
            if not wrong:
                traceback.print_exc(file=sys.stderr)
                if self.together:
                    raise
        self.seconds[name] = time.perf_counter() - start
        self._tell({"end": name, "seconds": self.seconds[name]})

    def verdict(self, payload: str, device: str, seconds: float) -> PayloadVerdict:
        """Return the verdict of all checks. A payload without a check has not passed."""
        failures = self.failures
        if not failures and not self.seconds:
            failures = ["no check ran"]
        figures = {**self.figures, "not-run": self.not_run} if self.not_run else self.figures
        outcome = PayloadOutcome.FAILED if failures else PayloadOutcome.PASSED
        return PayloadVerdict(payload, device, outcome, reason_of(failures), seconds, self.seconds, figures)


def _plain(value: Any) -> Any:
    """Convert a value to JSON's types: four digits are enough for people, and JSON has no infinity."""
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
