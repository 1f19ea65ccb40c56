"""Candidates for a release: images that are up to date and passed their tests, with their verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torchbake.build.commit import untrue_label
from torchbake.build.plan import ref_of
from torchbake.build.prepare import ImagePreparation
from torchbake.checks.expected import missing_checks
from torchbake.checks.reports import Reports
from torchbake.checks.suite_digest import outdated
from torchbake.checks.verdict import Outcome, Verdict, counts, merge
from torchbake.commands._index_releases import Platforms
from torchbake.commands._selection import lock_of
from torchbake.commands._verdicts import SignedVerdicts, VerdictFile
from torchbake.engine.image import EngineImage
from torchbake.errors import CheckError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.release.candidate import Candidate
from torchbake.release.record import RecordedVerdict
from torchbake.release.transport import ReadyImage
from torchbake.ui.command import Command

_MOST_CHECKS = 5  # checks that a message names


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The ``place`` of images, and the commands that build and test an image there, with ``{id}`` for its id."""

    place: str
    build: str
    test: str


IN_ENGINE = Advice(place="the engine", build=str(Command("build test", "{id}")), test=str(Command("test", "{id}")))
_ELSEWHERE = f"on a machine whose engine has it: {Command('test', '{id} --write-verdict DIR --key KEY')}"
IN_STORE = Advice(
    place="the store",
    build=f"{Command('build', '{id} --no-engine')}; then test it {_ELSEWHERE}",
    test=f"Test it {_ELSEWHERE}; then publish it with --verdicts DIR",
)


def candidate_of(
    preparation: ImagePreparation, spec: Spec, images: Mapping[str, EngineImage], waivers: Mapping[str, str],
    *, prepare: Callable[[str], ReadyImage], others: SignedVerdicts | None = None, advice: Advice = IN_ENGINE,
) -> Candidate:  # fmt: skip
    """Return the candidate of an image. Raises CheckError unless it is up to date, and passed its tests or was waived.

    ``images`` are in the place that ``advice`` names; ``prepare`` makes one ready for the upload, by its ID there.
    ``others`` are verdicts of other machines. They are merged with this machine's, if it has one of today's suite.
    Raises LockError for a bad lock. An image counts as up to date if its base was never fetched here.
    """
    project = preparation.project
    lock_of(project, spec)
    tags = project.tags[spec.id]
    image, build, test = images.get(ref_of(spec, tags)), advice.build.format(id=spec.id), advice.test.format(id=spec.id)
    if image is None:
        raise CheckError(f"{spec.id} is not in {advice.place}.", hint=build)
    own = Reports(folder=project.root / "reports").find(spec.id, image.digest)
    own = own if own and own.digest == image.digest else None
    files = others.of(project, spec, image) if others else []
    if own is None and not files:
        where = f", and {others.folder} has no verdict on it" if others else ""
        raise CheckError(f"{spec.id} has not been tested since it was built{where}.", hint=test)
    if old := preparation.why_old(spec, image):
        raise CheckError(f"{spec.id} is out of date: {old}.", hint=build)
    if untrue := untrue_label(project.root, image.labels):
        raise CheckError(f"{spec.id} is out of date: {untrue}.", hint=build)
    verdict = _whole(project, spec, own, files, hint=test)
    failed = [check.id for check in verdict.of(Outcome.FAILED) if check.id not in waivers]
    if failed or not verdict.of(Outcome.PASSED):
        raise CheckError(
            f"{spec.id} did not pass: {', '.join(failed) or 'nothing was checked'}{_names(files)}.",
            hint="Correct it, or waive it and say why: --waive CHECK=REASON",
        )
    waived = {check.id: check.summary for check in verdict.of(Outcome.WAIVED)}
    waived |= {check.id: waivers[check.id] for check in verdict.of(Outcome.FAILED)}
    ready, platforms = prepare(image.digest), Platforms(project=project, preparation=preparation)
    return Candidate(
        id=spec.id, digest=ready.digest, labels=image.labels, tags=platforms.tags(spec), verdict=_judgement(verdict),
        waived=waived, tested=image.digest, config=ready.config, own=platforms.name(spec),
    )  # fmt: skip


def _whole(
    project: Project, spec: Spec, own: Verdict | None, files: Sequence[VerdictFile], *, hint: str
) -> Verdict:  # fmt: skip
    """Merge the verdicts of the current suite on the current matrix. Raises CheckError if they lack checks."""
    reason = outdated(project, spec, own) if own else ""
    if reason and not files:
        raise CheckError(f"{spec.id}: {reason}.", hint=hint)
    verdict = merge([*(file.verdict for file in files), *([own] if own and not reason else [])])
    if missing := missing_checks(verdict, spec):
        reason = (
            f"its verdict lacks {len(missing)} of today's checks: {', '.join(missing[:_MOST_CHECKS])}{_names(files)}"
        )
        raise CheckError(f"{spec.id}: {reason}.", hint=hint)
    return verdict


def _names(files: Sequence[VerdictFile]) -> str:
    """Name the files of a verdict in a message; nothing for a verdict of this machine alone."""
    return f" (in {', '.join(str(file.path) for file in files)})" if files else ""


def _judgement(verdict: Verdict) -> RecordedVerdict:
    return RecordedVerdict(
        suite=verdict.suite,
        started=verdict.started,
        outcome=verdict.outcome,
        counts={str(outcome): number for outcome, number in counts(verdict.checks).items()},
        not_run={check.id: check.summary for check in verdict.of(Outcome.NOT_RUN)},
    )
