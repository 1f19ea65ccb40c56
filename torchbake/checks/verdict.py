"""Verdicts: the results of the checks of one image."""

import json
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, computed_field

from torchbake.core.problem import Problem

DERIVED = "derived"  # the word in `Verdict.how`


class Outcome(StrEnum):
    """The outcome of a check or of an image. A check that could not run (``not-run``) proves nothing.

    ``waived`` is a failure that is allowed, with a reason. It never counts as passed.
    """

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not-run"
    WAIVED = "waived"


class CheckResult(BaseModel):
    """The result of one check. The first line of ``reason`` is the problem, or why the check did not run.

    The reason of a waived check is that of the waiver, then the problem. ``remedy`` is a known solution.
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
        """Return the result of a check that found this problem, or None if it passed."""
        if problem is None:
            return cls(id=name, outcome=Outcome.PASSED, seconds=seconds)
        outcome = Outcome.NOT_RUN if problem.unknown else Outcome.FAILED
        return cls(id=name, outcome=outcome, reason=problem.reason, remedy=problem.remedy, seconds=seconds)

    @property
    def text(self) -> str:
        """The reason, and the remedy on the next line."""
        return "\n".join(filter(None, (self.reason.strip(), self.remedy)))

    @property
    def summary(self) -> str:
        """The first line of the reason; a check that should have a reason and has none gets a standard text."""
        line = self.reason.strip().partition("\n")[0].strip()
        return line or ("" if self.outcome is Outcome.PASSED else "no reason given")

    @property
    def measured(self) -> str:
        """The figures as JSON on one line."""
        return json.dumps(self.figures, ensure_ascii=False, sort_keys=True, default=str)


class Verdict(BaseModel):
    """The results of all checks of one image by one suite.

    ``image`` is the tested reference, ``id`` the row in the matrix (empty: none). The image has the ``digest`` in the
    engine, and ``config`` is the digest of the config (empty: not looked up). The digest ``suite`` is of everything
    else that decides the outcome. The digest ``promise`` is of the matrix's promises (empty: none). The options in the
    suite digest are ``how``, the mode of the GPU checks is ``gpu``. The time ``started`` is UTC in ISO 8601.
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
        """The devices that computed: torch's names of the GPUs, or ``cpu``."""
        names = {str(check.figures["gpu"]) for check in self.checks if "gpu" in check.figures}
        return tuple(sorted(names)) or ("cpu",)

    @property
    def partial(self) -> bool:
        """True if only a part of the checks was selected."""
        return any(word.startswith(("only=", "skip=")) for word in self.how)

    @property
    def derived(self) -> bool:
        """True if the image is derived from the image of the row ``id``."""
        return DERIVED in self.how

    @property
    def minute(self) -> str:
        """The time of the verdict: ``2026-11-21 07:50 UTC``."""
        return f"{self.started[:16].replace('T', ' ')} UTC"

    def of(self, outcome: Outcome) -> tuple[CheckResult, ...]:
        """Return the checks with this outcome, in their order."""
        return tuple(check for check in self.checks if check.outcome is outcome)

    def answers(self, *, image: str, digest: str, suite: str, gpu: str) -> bool:
        """Check if this verdict replaces a new run of the same checks on the same image.

        Only a pass does. A failure can come from the host, such as a full disk, so the checks run again. The GPU mode
        must be equal, as `require` must not accept a pass for which `auto` left checks out.
        """
        same = (self.image, self.digest, self.suite, self.gpu) == (image, digest, suite, gpu)
        return same and self.outcome is Outcome.PASSED


def outcome_of(checks: Iterable[CheckResult]) -> Outcome:
    """Return failed if a check failed that is not waived; not-run if none passed or there is none; else passed."""
    outcomes = {check.outcome for check in checks}
    if Outcome.FAILED in outcomes:
        return Outcome.FAILED
    return Outcome.PASSED if Outcome.PASSED in outcomes else Outcome.NOT_RUN


_WORST_FIRST = (Outcome.FAILED, Outcome.WAIVED, Outcome.PASSED, Outcome.NOT_RUN)


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """Merge verdicts of one image by one suite. Each check has its worst outcome; all others precede ``not-run``.

    Other fields are those of the verdict with the most checks, or of the latest of several. The order of ``verdicts``
    does not matter. Raise ValueError if there is none.
    """
    ordered = sorted(verdicts, key=lambda one: (len(one.checks), one.started, one.model_dump_json()), reverse=True)
    if not ordered:
        raise ValueError("no verdicts to merge")
    checks: dict[str, CheckResult] = {}
    for check in (check for verdict in ordered for check in verdict.checks):
        first_check = checks.setdefault(check.id, check)
        if _WORST_FIRST.index(check.outcome) < _WORST_FIRST.index(first_check.outcome):
            checks[check.id] = check
    first = ordered[0]
    return first.model_copy(
        update={"checks": tuple(checks.values()), "seconds": round(sum(one.seconds for one in ordered), 2)}
    )


def counts(checks: Iterable[CheckResult]) -> dict[Outcome, int]:
    """Return the number of checks with each outcome, including zeros."""
    counted = Counter(check.outcome for check in checks)
    return {outcome: counted[outcome] for outcome in Outcome}


def tally(checks: Iterable[CheckResult]) -> str:
    """Return ``40 passed, 1 failed, 3 not run``, without zeros."""
    words = [f"{number} {outcome.replace('-', ' ')}" for outcome, number in counts(checks).items() if number]
    return ", ".join(words) or "no checks"


def causes(checks: Iterable[CheckResult]) -> dict[str, list[str]]:
    """Return each reason why checks did not run, with the ids of the checks."""
    matches: dict[str, list[str]] = {}
    for check in checks:
        if check.outcome is Outcome.NOT_RUN and check.id not in matches.setdefault(check.summary, []):
            matches[check.summary].append(check.id)
    return matches


def remedies(checks: Iterable[CheckResult]) -> tuple[str, ...]:
    """Return the remedies of failed checks, each once."""
    failed = (check for check in checks if check.outcome is Outcome.FAILED)
    return tuple(dict.fromkeys(check.remedy for check in failed if check.remedy))


_RESULTS = TypeAdapter(tuple[CheckResult, ...], config=ConfigDict(defer_build=True))  # most commands read none


def read_results(text: str) -> tuple[CheckResult, ...]:
    """Read the results of a suite. Raise ValueError for anything but a JSON list of CheckResults."""
    return _RESULTS.validate_json(text)


def dump_results(results: Iterable[CheckResult]) -> str:
    """Return results as a JSON list for `read_results`."""
    return _RESULTS.dump_json(tuple(results), indent=2).decode() + "\n"
