"""What may be released: an image of the engine that was tested as it is, with the verdict."""

from collections.abc import Mapping

from torchbake.build.plan import ref_of
from torchbake.build.prepare import Preparation
from torchbake.build.source_date import untrue_label
from torchbake.checks.expected import missing_checks
from torchbake.checks.reports import Reports
from torchbake.checks.suite_digest import promise_digest, suite_digest
from torchbake.checks.verdict import Outcome, Verdict, counts
from torchbake.commands._selection import lock_of
from torchbake.engine.image import Image
from torchbake.errors import CheckError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.release.candidate import Candidate
from torchbake.release.record import Judgement

_SHOWN = 5  # checks that a message names


def candidate_of(
    preparation: Preparation, spec: Spec, images: Mapping[str, Image], waivers: Mapping[str, str]
) -> Candidate:
    """Raises CheckError unless the image is up to date, was tested as it is, and passed or was waived.

    Raises LockError for a bad lock. Whether a base that was never fetched here is up to date nobody can tell.
    """
    project = preparation.project
    lock_of(project, spec)
    tags = project.tags[spec.id]
    image = images.get(ref_of(spec, tags))
    if image is None:
        raise CheckError(f"{spec.id} is not in the engine.", hint=f"nox -s build test -- {spec.id}")
    verdict = Reports(folder=project.root / "reports").find(spec.id, image.digest)
    if verdict is None or verdict.digest != image.digest:
        raise CheckError(f"{spec.id} has not been tested since it was built.", hint=f"nox -s test -- {spec.id}")
    if old := preparation.why_old(spec, image):
        raise CheckError(f"{spec.id} is out of date: {old}.", hint=f"nox -s build test -- {spec.id}")
    if untrue := untrue_label(project.root, image.labels):
        raise CheckError(f"{spec.id} is out of date: {untrue}.", hint=f"nox -s build test -- {spec.id}")
    _check_whole(project, spec, verdict)
    failed = [check.id for check in verdict.of(Outcome.FAILED) if check.id not in waivers]
    if failed or not verdict.of(Outcome.PASSED):
        raise CheckError(
            f"{spec.id} did not pass: {', '.join(failed) or 'nothing was checked'}.",
            hint="Correct it, or waive it and say why: --waive CHECK=REASON",
        )
    waived = {check.id: check.summary for check in verdict.of(Outcome.WAIVED)}
    waived |= {check.id: waivers[check.id] for check in verdict.of(Outcome.FAILED)}
    return Candidate(
        id=spec.id, digest=image.digest, labels=image.labels, tags=tags, verdict=_judgement(verdict), waived=waived
    )


def _check_whole(project: Project, spec: Spec, verdict: Verdict) -> None:
    """Raise CheckError unless a verdict is on what the matrix promises today, and of all checks of today's suite."""
    if verdict.promise != promise_digest(project, spec):
        reason = "the matrix promises something else of it, or waives other checks, than when it was tested"
        raise CheckError(f"{spec.id}: {reason}.", hint=f"nox -s test -- {spec.id}")
    if verdict.suite != suite_digest(project, spec, verdict.how):
        reason = "was tested by other checks than today's: they or the toolkit have changed since"
        raise CheckError(f"{spec.id} {reason}.", hint=f"nox -s test -- {spec.id}")
    if missing := missing_checks(verdict, spec):
        reason = f"its verdict lacks {len(missing)} of today's checks: {', '.join(missing[:_SHOWN])}"
        raise CheckError(f"{spec.id}: {reason}.", hint=f"nox -s test -- {spec.id}")


def _judgement(verdict: Verdict) -> Judgement:
    return Judgement(
        suite=verdict.suite,
        started=verdict.started,
        outcome=verdict.outcome,
        counts={str(outcome): number for outcome, number in counts(verdict.checks).items()},
        not_run={check.id: check.summary for check in verdict.of(Outcome.NOT_RUN)},
    )
