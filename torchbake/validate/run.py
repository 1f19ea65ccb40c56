"""Run of validations: images and references in parallel, each read from its registry, pulled, checked and reported."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import TypeAlias

from torchbake.checks.reports import ImageResult, Reports
from torchbake.checks.smoke_run import Session
from torchbake.checks.verdict import CheckResult, Outcome, Verdict
from torchbake.core.parallel import run_all
from torchbake.core.problem import Problem, problem_of, unknown
from torchbake.engine.client import Engine
from torchbake.errors import TorchbakeError
from torchbake.matrix.spec import AMD64
from torchbake.oci.reference import Reference, Repository
from torchbake.registry.client import Registry
from torchbake.registry.cosign import NO_TRUST, NoCosign, Verifier
from torchbake.ui.progress_board import Board, board
from torchbake.validate.expect import Versions, most_exact
from torchbake.validate.facts import ServedImage, ServedTag, Signatures, short
from torchbake.validate.fetch import Survey
from torchbake.validate.judge import NOTHING_EXPECTED, Inside, judge, judge_reference, own_digests
from torchbake.validate.judge_attestations import signed_digests
from torchbake.validate.judge_image import SILENT, check
from torchbake.validate.promise import Promise, concerns
from torchbake.validate.pull import InspectionRequest, Look, Looker

SUITE = "validate"
GATE = "gate"
_NO_DIGEST = "none"
_NO_VERIFIER = NoCosign(skip_reason=NO_TRUST)


@dataclass(frozen=True, kw_only=True)
class TagFindings:
    """The results of one tag. ``ref`` is the full name, ``row`` the image in the matrix (empty: none)."""

    ref: str
    row: str
    answer: ServedTag
    checks: tuple[CheckResult, ...]


@dataclass(frozen=True, kw_only=True)
class MatrixSubject:
    """An image of the matrix; ``known_ids`` are the ids of all its images, ``verifier`` verifies signatures.

    If it is an image of several platforms, ``index`` is the promise of the index of all. ``gate`` judges the release
    with a tag by known vulnerabilities.
    """

    promise: Promise
    registry: Registry
    known_ids: frozenset[str]
    verifier: Verifier = _NO_VERIFIER
    index: Promise | None = None
    gate: Callable[[str, Registry, str], Problem | None] | None = None

    @property
    def name(self) -> str:
        return self.promise.id

    @property
    def platform(self) -> str:
        return self.promise.platform

    @property
    def where(self) -> str:
        return str(self.registry.repository)

    def validate(self, looker: Looker, look: Look) -> list[TagFindings]:
        """Read, pull and check each tag. May raise EngineError."""
        survey, inside = Survey(self.registry, self.promise.platform), dict[str, Inside]()
        promises = [self.promise, *([self.index] if self.index else [])]
        parts, tags, newest = dict[str, str](), list[TagFindings](), set[str]()
        for promise in promises:
            tags += self._validate(promise, survey, (inside, parts), looker, look)
            newest |= {*promise.tags, *list(parts)[-1:]}
        return self._judged(tags, newest, parts, look) if self.gate else tags

    def _validate(
        self, promise: Promise, survey: Survey, earlier: tuple[dict[str, Inside], dict[str, str]], looker: Looker,
        look: Look,
    ) -> list[TagFindings]:  # fmt: skip
        """Validate the tags of one promise. ``earlier``: results by digest, and the images of a platform's releases."""
        inside, parts = earlier
        shelf = survey.shelf(promise.tags, look, name=promise.name)
        shelf = replace(shelf, revisions=tuple(one for one in shelf.revisions if concerns(promise, one.record)))
        if promise.index:
            shelf = replace(shelf, parts=parts)
        parts |= {str(one.tag): one.tag_answer.image.digest for one in shelf.revisions if one.tag_answer.image}
        answers = {**shelf.tags, **{str(revision.tag): revision.tag_answer for revision in shelf.revisions}}
        own = own_digests(promise, shelf)
        for image in (each.image for each in answers.values()):
            if image and image.digest in own and image.digest not in inside:
                expected = most_exact(promise.versions, image.labels)
                question = _question(self.registry.repository, image, expected, promise)
                inside[image.digest] = looker.look_into(question, look)
        signatures = _verify(self.verifier, self.registry.repository, signed_digests(shelf), look)
        end = f" ({promise.platform})" if promise.index else ""
        return [
            TagFindings(ref=f"{shelf.repository}:{tag}{end}", row=promise.id, answer=answers[tag], checks=checks)
            for tag, checks in judge(promise, shelf, inside, self.known_ids, signatures).items()
        ]

    def _judged(
        self, tags: Sequence[TagFindings], newest: AbstractSet[str], parts: Mapping[str, str], look: Look
    ) -> list[TagFindings]:
        """Add the decision of the gate on the image of each tag in ``newest``. Each image is judged once.

        ``parts`` are the images of releases by their tags, those of the platform before those of the index, whose SBOM
        has no packages.
        """
        releases = {digest: tag for tag, digest in reversed([*parts.items()])}

        @cache
        def decide(digest: str) -> CheckResult:
            tag = releases.get(digest)
            if self.gate is None or tag is None:
                return check(GATE, unknown("it is not a release of this image"))
            look(f"vulnerabilities of {tag}")
            return check(GATE, self.gate(self.promise.id, self.registry, tag))

        served = [(one, one.answer.image) for one in tags]
        return [
            replace(one, checks=(*one.checks, decide(image.digest))) if image and one.answer.tag in newest else one
            for one, image in served
        ]


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """An image reference with the versions that it must have; by default, those of its labels.

    Of an index, the image for the ``platform`` is meant.
    """

    reference: Reference
    registry: Registry
    expected: Versions
    verifier: Verifier = _NO_VERIFIER
    platform: str = AMD64

    @property
    def name(self) -> str:
        return str(self.reference)

    @property
    def where(self) -> str:
        return self.reference.repository.host

    def validate(self, looker: Looker, look: Look) -> list[TagFindings]:
        repository = self.registry.repository
        answer = Survey(self.registry, self.platform).look_up(self.reference.key, look)
        inside: dict[str, Inside] = {}
        if answer.image:
            expected = self.expected or most_exact({}, answer.image.labels)
            question = replace(_question(repository, answer.image, expected), platform=self.platform)
            inside[answer.image.digest] = looker.look_into(question, look)
        signatures = _verify(self.verifier, repository, [answer.digest] if answer.digest else [], look)
        checks = judge_reference(answer, self.expected, inside, str(repository), signatures, platform=self.platform)
        return [TagFindings(ref=self.name, row="", answer=answer, checks=checks)]


ValidationSubject: TypeAlias = MatrixSubject | Foreign


def _verify(verifier: Verifier, repository: Repository, digests: Iterable[str], look: Look) -> Signatures:
    if verifier.skip_reason:
        return Signatures(problem=unknown(verifier.skip_reason))
    problems: dict[str, Problem | None] = {}
    for digest in digests:
        look(f"signature of {short(digest)}")
        problems[digest] = verifier.problem(repository, digest)
    return Signatures(problems=problems)


def _question(
    repository: Repository, image: ServedImage, expected: Versions, promise: Promise | None = None
) -> InspectionRequest:
    """Return the expected content of an image. An incomplete image is not pulled."""
    release, row, waivers = (promise.release, promise.id, promise.waivers) if promise else ("", "", {})
    broken = image.config_problem or any(piece.actual_size != piece.size for piece in image.pieces)
    problem = unknown("not all of it is there") if broken else None if expected or release else NOTHING_EXPECTED
    return InspectionRequest(
        repository=repository, digest=image.digest, labels=image.labels, expected=expected, release=release,
        problem=problem, row=row, waivers=waivers, platform=promise.platform if promise else AMD64,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ValidateRun:
    """Validations of several subjects. ``engine`` is None if no image is pulled.

    If a registry cannot be reached, its checks are not run. With ``require_answer`` they fail.
    """

    looker: Looker
    reports: Reports
    session: Session
    engine: Engine | None
    require_answer: bool = False

    def run(self, subjects: Sequence[ValidationSubject], *, jobs: int) -> list[ImageResult]:
        """Validate all subjects, and return the results of their tags in order. Each report is saved at once.

        Raise KeyboardInterrupt after all containers are removed.
        """
        with board(len(subjects), doing="validating") as progress, ExitStack() as clean_up:

            def stop() -> None:
                self.session.stop(self.engine, clean_up)
                self.looker.stop()

            tested = run_all(subjects, lambda subject: self._validate(subject, progress), jobs=jobs, stop=stop)
            return [tag for of_subject in tested for tag in of_subject]

    def _validate(self, subject: ValidationSubject, progress: Board) -> list[ImageResult]:
        def look(text: str) -> None:
            if self.session.stopping.is_set():
                raise KeyboardInterrupt
            progress.look(subject.name, text)

        start, clock = datetime.now(UTC), time.monotonic()
        progress.start(subject.name, f"at {subject.where}")
        try:
            tags = subject.validate(self.looker, look)
        except TorchbakeError as error:
            progress.end(subject.name, error.message, good=False)
            problem = problem_of(error)
            return [ImageResult(name=subject.name, ref=subject.where, problem=problem, platform=subject.platform)]
        seconds = round((time.monotonic() - clock) / len(tags), 2)
        verdicts = [self._keep(each, start.isoformat(timespec="seconds"), seconds) for each in tags]
        results = [replace(each, platform=subject.platform) for each in verdicts]
        bad = sum(each.outcome is not Outcome.PASSED for each in results)
        good = f"{len(results)} {'tags' if len(results) > 1 else 'tag'} good"
        progress.end(subject.name, f"{bad} of {len(results)} tags did not pass" if bad else good, good=not bad)
        return results

    def _required(self, result: CheckResult) -> CheckResult:
        missing = self.require_answer and result.id == SILENT and result.outcome is Outcome.NOT_RUN
        return result.model_copy(update={"outcome": Outcome.FAILED}) if missing else result

    def _keep(self, findings: TagFindings, start: str, seconds: float) -> ImageResult:
        verdict = Verdict(
            image=findings.ref, id=findings.row, digest=findings.answer.digest or _NO_DIGEST, suite=SUITE, gpu="off",
            started=start, seconds=seconds, checks=tuple(map(self._required, findings.checks)),
        )  # fmt: skip
        labels = findings.answer.image.labels if findings.answer.image else {}
        page = self.reports.keep(findings.ref, verdict, labels, partial=False)
        return ImageResult(name=findings.ref, ref=findings.ref, verdict=verdict, report=page)
