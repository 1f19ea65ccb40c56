"""Verdicts: what the checks of one image found."""

import json
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, computed_field

from torchbake.core.problem import Problem

DERIVED = "derived"  # the word in `Verdict.how`


class Outcome(StrEnum):
    """``not-run`` is neither of the others: a check that could not run proves nothing.

    ``waived`` is a failure that somebody allowed, with a reason. It is counted apart, and never as passed.
    """

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not-run"
    WAIVED = "waived"


class CheckResult(BaseModel):
    """One check. ``reason`` says what is wrong (failed) or why it did not run (not-run), in one line before others;
    ``remedy`` is what puts it right, where that is known.

    Of a waived one it says why it may fail, and after that what is wrong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    outcome: Outcome
    reason: str = ""
    remedy: str = ""
    seconds: float = 0
    figures: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(cls, name: str, problem: Problem | None, *, seconds: float = 0) -> "CheckResult":
        """A check that found this problem; None: it passed."""
        if problem is None:
            return cls(id=name, outcome=Outcome.PASSED, seconds=seconds)
        outcome = Outcome.NOT_RUN if problem.unknown else Outcome.FAILED
        return cls(id=name, outcome=outcome, reason=problem.reason, remedy=problem.remedy, seconds=seconds)

    @property
    def text(self) -> str:
        """The reason, and below it the remedy."""
        return "\n".join(filter(None, (self.reason.strip(), self.remedy)))

    @property
    def summary(self) -> str:
        """The first line of the reason. A check that should give one and does not is told apart."""
        line = self.reason.strip().partition("\n")[0].strip()
        return line or ("" if self.outcome is Outcome.PASSED else "no reason given")

    @property
    def measured(self) -> str:
        """Its figures, as JSON on one line."""
        return json.dumps(self.figures, ensure_ascii=False, sort_keys=True, default=str)


class Verdict(BaseModel):
    """All checks of one image, made by one suite.

    ``image`` is the reference that was tested, ``id`` its row in the matrix (empty: none). ``digest`` is the image's in
    the engine, ``config`` that of its config (empty: not looked up). ``suite`` is the digest of everything else that
    decides the outcome, ``promise`` that of what the matrix promises alone (empty: nothing), ``how`` the options in the
    suite digest, ``gpu`` the mode of the GPU checks.
    ``started`` is UTC in ISO 8601.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    image: str
    id: str
    digest: str
    config: str = ""
    suite: str
    promise: str = ""
    how: tuple[str, ...] = ()
    gpu: str
    started: str
    seconds: float
    checks: tuple[CheckResult, ...]

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorator above @property; pydantic documents this
    @property
    def outcome(self) -> Outcome:
        return outcome_of(self.checks)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that computed: the names of the GPUs, as torch gives them; or ``cpu``."""
        names = {str(check.figures["gpu"]) for check in self.checks if "gpu" in check.figures}
        return tuple(sorted(names)) or ("cpu",)

    @property
    def partial(self) -> bool:
        """True if only a part of the checks was asked for."""
        return any(word.startswith(("only=", "skip=")) for word in self.how)

    @property
    def derived(self) -> bool:
        """True if the image is FROM the image of the row ``id``."""
        return DERIVED in self.how

    @property
    def minute(self) -> str:
        """When it was made: ``2026-11-21 07:50 UTC``."""
        return f"{self.started[:16].replace('T', ' ')} UTC"

    def of(self, outcome: Outcome) -> tuple[CheckResult, ...]:
        """The checks that ended so, in their order."""
        return tuple(check for check in self.checks if check.outcome is outcome)

    def answers(self, *, image: str, digest: str, suite: str, gpu: str) -> bool:
        """Whether this verdict may stand for a new run of the same checks on the same image.

        Only a passed one may. A failure can come from the host (a full disk, a slow moment), and whoever asks again
        wants to know whether it is still there; a pass, of the same bytes by the same checks, is not in doubt.
        The GPU mode must be the same too: what `auto` left out, `require` must not take for a pass.
        """
        same = (self.image, self.digest, self.suite, self.gpu) == (image, digest, suite, gpu)
        return same and self.outcome is Outcome.PASSED


def outcome_of(checks: Iterable[CheckResult]) -> Outcome:
    """Failed if any check failed that is not waived; not-run if none passed, so also without checks; else passed."""
    outcomes = {check.outcome for check in checks}
    if Outcome.FAILED in outcomes:
        return Outcome.FAILED
    return Outcome.PASSED if Outcome.PASSED in outcomes else Outcome.NOT_RUN


_WORST_FIRST = (Outcome.FAILED, Outcome.WAIVED, Outcome.PASSED, Outcome.NOT_RUN)


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """Merge verdicts of one image by one suite. Each check ends in its worst outcome; ``not-run`` gives way to all.

    Other fields are those of the verdict with the most checks, of these the latest. The order of ``verdicts`` does not
    matter. Raises ValueError if there is none.
    """
    ordered = sorted(verdicts, key=lambda one: (-len(one.checks), one.started, one.model_dump_json()))
    if not ordered:
        raise ValueError("no verdicts to merge")
    checks: dict[str, CheckResult] = {}
    for check in (check for verdict in ordered for check in verdict.checks):
        known = checks.setdefault(check.id, check)
        if _WORST_FIRST.index(check.outcome) < _WORST_FIRST.index(known.outcome):
            checks[check.id] = check
    first = ordered[0]
    return first.model_copy(
        update={"checks": tuple(checks.values()), "seconds": round(sum(one.seconds for one in ordered), 2)}
    )


def counts(checks: Iterable[CheckResult]) -> dict[Outcome, int]:
    """How many checks ended in each way; every way is there."""
    counted = Counter(check.outcome for check in checks)
    return {outcome: counted[outcome] for outcome in Outcome}


def tally(checks: Iterable[CheckResult]) -> str:
    """``40 passed, 1 failed, 3 not run``; what did not happen is left out."""
    words = {Outcome.NOT_RUN: "not run"}
    said = [f"{number} {words.get(outcome, outcome)}" for outcome, number in counts(checks).items() if number]
    return ", ".join(said) or "no checks"


def causes(checks: Iterable[CheckResult]) -> dict[str, list[str]]:
    """Why checks did not run: each reason once, with the ids of its checks."""
    found: dict[str, list[str]] = {}
    for check in checks:
        if check.outcome is Outcome.NOT_RUN and check.id not in found.setdefault(check.summary, []):
            found[check.summary].append(check.id)
    return found


def remedies(checks: Iterable[CheckResult]) -> tuple[str, ...]:
    """What puts failed checks right, each command once."""
    failed = (check for check in checks if check.outcome is Outcome.FAILED)
    return tuple(dict.fromkeys(check.remedy for check in failed if check.remedy))


_RESULTS = TypeAdapter(tuple[CheckResult, ...], config=ConfigDict(defer_build=True))  # most commands read none


def read_results(text: str) -> tuple[CheckResult, ...]:
    """The results that a suite wrote. Raises ValueError when they are not a JSON list of CheckResults."""
    return _RESULTS.validate_json(text)


def dump_results(results: Iterable[CheckResult]) -> str:
    """A JSON list for `read_results`."""
    return _RESULTS.dump_json(tuple(results), indent=2).decode() + "\n"
