"""Run of validations: images and references in parallel, each read from its registry, pulled, checked and reported."""

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from torchbake.checks.reports import Reports, Tested
from torchbake.checks.smoke_run import Session
from torchbake.checks.verdict import CheckResult, Outcome, Verdict
from torchbake.core.parallel import run_all
from torchbake.core.problem import Problem, problem_of, unknown
from torchbake.engine.client import Engine
from torchbake.errors import TorchbakeError
from torchbake.oci.reference import Reference, Repository
from torchbake.registry.client import Registry
from torchbake.registry.cosign import UNASKED, Idle, Verifier
from torchbake.ui.progress_board import Board, board
from torchbake.validate.expect import Versions, most_exact
from torchbake.validate.facts import Image, Served, Signatures, short
from torchbake.validate.fetch import Survey
from torchbake.validate.judge import NOTHING_EXPECTED, Inside, Promise, judge, judge_reference, own_digests
from torchbake.validate.judge_attestations import signed_digests
from torchbake.validate.pull import Look, Looker, Question

SUITE = "validate"
_NO_DIGEST = "none"
_NO_VERIFIER = Idle(skip_reason=UNASKED)


@dataclass(frozen=True, kw_only=True)
class Found:
    """The results of one tag. ``ref`` is the full name, ``row`` the image in the matrix (empty: none)."""

    ref: str
    row: str
    served: Served
    checks: tuple[CheckResult, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """An image of the matrix; ``known`` are the ids of all its images, ``verifier`` verifies signatures."""

    promise: Promise
    registry: Registry
    known: frozenset[str]
    verifier: Verifier = _NO_VERIFIER

    @property
    def name(self) -> str:
        return self.promise.id

    @property
    def where(self) -> str:
        return str(self.registry.repository)

    def validate(self, looker: Looker, look: Look) -> list[Found]:
        """Read, pull and check each tag. May raise EngineError."""
        shelf = Survey(self.registry).shelf(self.promise.tags, look)
        served = {**shelf.tags, **{str(revision.tag): revision.served for revision in shelf.revisions}}
        own, inside = own_digests(self.promise, shelf), dict[str, Inside]()
        for image in (each.image for each in served.values()):
            if image and image.digest in own and image.digest not in inside:
                expected = most_exact(self.promise.versions, image.labels)
                question = _question(self.registry.repository, image, expected, self.promise)
                inside[image.digest] = looker.look_into(question, look)
        signatures = _verify(self.verifier, self.registry.repository, signed_digests(shelf), look)
        return [
            Found(ref=f"{shelf.repository}:{tag}", row=self.promise.id, served=served[tag], checks=checks)
            for tag, checks in judge(self.promise, shelf, inside, self.known, signatures).items()
        ]


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """An image reference with the versions that it must have; by default, those of its labels."""

    reference: Reference
    registry: Registry
    expected: Versions
    verifier: Verifier = _NO_VERIFIER

    @property
    def name(self) -> str:
        return str(self.reference)

    @property
    def where(self) -> str:
        return self.reference.repository.host

    def validate(self, looker: Looker, look: Look) -> list[Found]:
        served, repository = Survey(self.registry).look_up(self.reference.key, look), self.registry.repository
        inside: dict[str, Inside] = {}
        if served.image:
            expected = self.expected or most_exact({}, served.image.labels)
            question = _question(repository, served.image, expected)
            inside[served.image.digest] = looker.look_into(question, look)
        signatures = _verify(self.verifier, repository, [served.digest] if served.digest else [], look)
        checks = judge_reference(served, self.expected, inside, str(repository), signatures)
        return [Found(ref=self.name, row="", served=served, checks=checks)]


Subject: TypeAlias = Row | Foreign


def _verify(verifier: Verifier, repository: Repository, digests: Iterable[str], look: Look) -> Signatures:
    if verifier.skip_reason:
        return Signatures(problem=unknown(verifier.skip_reason))
    problems: dict[str, Problem | None] = {}
    for digest in digests:
        look(f"signature of {short(digest)}")
        problems[digest] = verifier.problem(repository, digest)
    return Signatures(problems=problems)


def _question(repository: Repository, image: Image, expected: Versions, promise: Promise | None = None) -> Question:
    """Return the expected content of an image. An incomplete image is not pulled."""
    release, row, waivers = (promise.release, promise.id, promise.waivers) if promise else ("", "", {})
    broken = image.config_problem or any(piece.found != piece.size for piece in image.pieces)
    problem = unknown("not all of it is there") if broken else None if expected or release else NOTHING_EXPECTED
    return Question(
        repository=repository, digest=image.digest, labels=image.labels, expected=expected, release=release,
        problem=problem, row=row, waivers=waivers,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ValidateRun:
    """Validations of several subjects. ``engine`` is None if no image is pulled."""

    looker: Looker
    reports: Reports
    session: Session
    engine: Engine | None

    def run(self, subjects: Sequence[Subject], *, jobs: int) -> list[Tested]:
        """Validate all subjects, and return the results of their tags in order. Each report is saved at once.

        Raise KeyboardInterrupt after all containers are removed.
        """
        with board(len(subjects), doing="validating") as shown, ExitStack() as clean_up:

            def stop() -> None:
                self.session.stop(self.engine, clean_up)
                self.looker.stop()

            tested = run_all(subjects, lambda subject: self._validate(subject, shown), jobs=jobs, stop=stop)
            return [tag for of_subject in tested for tag in of_subject]

    def _validate(self, subject: Subject, shown: Board) -> list[Tested]:
        def look(text: str) -> None:
            if self.session.stopping.is_set():
                raise KeyboardInterrupt
            shown.look(subject.name, text)

        started, clock = datetime.now(UTC), time.monotonic()
        shown.start(subject.name, f"at {subject.where}")
        try:
            tags = subject.validate(self.looker, look)
        except TorchbakeError as error:
            shown.end(subject.name, error.message, good=False)
            return [Tested(name=subject.name, ref=subject.where, problem=problem_of(error))]
        seconds = round((time.monotonic() - clock) / len(tags), 2)
        tested = [self._keep(each, started.isoformat(timespec="seconds"), seconds) for each in tags]
        bad = sum(each.outcome is not Outcome.PASSED for each in tested)
        good = f"{len(tested)} {'tags' if len(tested) > 1 else 'tag'} good"
        shown.end(subject.name, f"{bad} of {len(tested)} tags did not pass" if bad else good, good=not bad)
        return tested

    def _keep(self, found: Found, started: str, seconds: float) -> Tested:
        verdict = Verdict(
            image=found.ref, id=found.row, digest=found.served.digest or _NO_DIGEST, suite=SUITE, gpu="off",
            started=started, seconds=seconds, checks=found.checks,
        )  # fmt: skip
        labels = found.served.image.labels if found.served.image else {}
        page = self.reports.keep(found.ref, verdict, labels, partial=False)
        return Tested(name=found.ref, ref=found.ref, verdict=verdict, report=page)
