"""`validate`: compare the images of a registry with the matrix."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from torchbake.checks.pytest_run import CheckOptions, Suite
from torchbake.checks.reports import ImageResult, Reports, as_json
from torchbake.checks.smoke_run import Session
from torchbake.checks.suite_digest import CHECKS
from torchbake.checks.tables import show_run
from torchbake.checks.verdict import Outcome, remedies
from torchbake.commands import _options as opt
from torchbake.commands._destinations import Destination, repositories_of
from torchbake.commands._selection import load_selection, lock_of
from torchbake.commands._signing import Verifying, verifier_of
from torchbake.core.paths import TOOLKIT, state_of
from torchbake.core.plain_text import with_reasons
from torchbake.core.problem import Problem, problem_of
from torchbake.core.signals import interruptible
from torchbake.engine.client import Engine, connect
from torchbake.engine.leftovers import remove_leftovers
from torchbake.errors import CheckError, EngineError, LockError, RegistryError, UsageError, ValidateError
from torchbake.matrix.platforms import platform_tag, shared_id
from torchbake.matrix.project import Project, run_folder
from torchbake.matrix.spec import AMD64, PLATFORMS, Spec
from torchbake.oci.reference import Repository, parse_reference
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Verifier
from torchbake.registry.transport import RegistryTransport
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.validate.expect import parse_expected
from torchbake.validate.judge_image import SILENT
from torchbake.validate.promise import Promise, promise_of
from torchbake.validate.pull import EngineInspection, NoInspection
from torchbake.validate.run import Foreign, MatrixSubject, ValidateRun, ValidationSubject

EXAMPLES = (
    "cuda12 --registry ghcr.io/acme",
    "all --registry 127.0.0.1:5000/team --no-pull --format json > validation.json",
    "cuda12 --registry ghcr.io/acme --key cosign.pub",
    "2.7.1 --registry ghcr.io/acme --suite --jobs 1",
    "all --registry ghcr.io/acme --no-pull --gate gate.yaml",
    "pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime --expect torch=2.10.0,cuda=12.8,python=3.11",
    "ghcr.io/acme/pytorch:cpu --platform linux/arm64 --expect torch=2.10.0",
)
_MOST_LINES = 5


def _versions(text: str) -> dict[str, str | None]:
    try:
        return parse_expected(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _selectors_in(words: Sequence[str]) -> list[str]:
    """Return the words that select images of the matrix; the others are references."""
    return [word for word in words if word.startswith("@") or not ("/" in word or ":" in word)]


@dataclass(frozen=True, kw_only=True)
class Arguments(Verifying):
    words: tuple[str, ...] = opt.argument(
        f"{opt.SELECTOR_HELP}; with '/' or ':' in it, any image reference",
        nargs="*",
        action=opt.Words,
        metavar="SELECTOR|REF",
    )
    registry: tuple[Destination, ...] = opt.registries(
        "the images of each are judged", configured=lambda args: not args.words or bool(_selectors_in(args.words))
    )
    expect: dict[str, str | None] = opt.option(
        "what a REF must hold: torch, cuda, cudnn, nccl, python; `cuda=none` means that it must not", type=_versions,
        default={}, metavar="NAME=VERSION,…",
    )  # fmt: skip
    platform: str = opt.option(
        f"of a REF that is an index: the image for this platform (default: {AMD64})", choices=PLATFORMS, default=AMD64,
        metavar="OS/ARCHITECTURE",
    )  # fmt: skip
    no_pull: bool = opt.option("look into no image: start no container, ask no engine")
    suite: bool = opt.option(f"also run all image checks (`{Command('test')}`) on what was pulled")
    gate: Path | None = opt.option(
        "also judge the releases of rolling tags, and the newest ones, by this gate", metavar="FILE"
    )
    require_answer: bool = opt.option("a registry that cannot be reached is a failure, and not `not-run`")
    timeout: int = opt.timeout(300, "seconds for the container of an image")
    jobs: int = opt.jobs()
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    session, verifier = Session(), verifier_of(args)
    if args.suite and args.no_pull:
        raise UsageError("--suite checks what was pulled.", hint="Leave --no-pull out.")
    with interruptible():
        subjects = _subjects(args, session, verifier)
        engine, reason = _engine(args)
        if args.suite and engine is None:
            raise EngineError(f"--suite runs the checks in an engine: {reason}", hint=f"Run: {Command('setup')}")
        looker = _looker(args, engine, session) if engine else NoInspection(reason=reason)
        reports = Reports(folder=args.matrix.absolute().parent / "reports" / "validate")
        results = ValidateRun(
            looker=looker, reports=reports, session=session, engine=engine, require_answer=args.require_answer
        ).run(subjects, jobs=args.jobs)
    page = reports.summarise(results)
    if args.format == "json":
        console.show_json(as_json(results))
    else:
        show_run(results)
    return _conclude(results, page)


def _looker(args: Arguments, engine: Engine, session: Session) -> EngineInspection:
    matrix = args.matrix.absolute()
    suite = Suite(CHECKS, CheckOptions(), cwd=TOOLKIT, extra=("--matrix", str(matrix))) if args.suite else None
    logs = run_folder(state_of(matrix.parent))
    return EngineInspection(engine=engine, session=session, timeout=args.timeout, suite=suite, logs=logs)


def _conclude(results: Sequence[ImageResult], page: Path) -> int:
    """Raise RegistryError if tags without an answer are all that did not pass, and ValidateError for failures."""
    bad = [result for result in results if result.outcome is not Outcome.PASSED]
    if not bad:
        return 0
    reasons = [(result.name, result.reason) for result in bad]
    failed = {check.id for result in bad for check in result.checks if check.outcome is Outcome.FAILED}
    steps = remedies(check for result in bad for check in result.checks)
    hint = "\n        ".join((*steps[:_MOST_LINES], f"Read the table above, or {page}."))
    if failed <= {SILENT} and all(result.verdict for result in bad):
        raise RegistryError(with_reasons(f"No answer for {len(bad)} of {len(results)} tags:", reasons), hint=hint)
    raise ValidateError(
        with_reasons(f"{len(bad)} of {len(results)} tags are not what they should be:", reasons), hint=hint
    )


def _subjects(args: Arguments, session: Session, verifier: Verifier) -> list[ValidationSubject]:
    words = list(dict.fromkeys(args.words))
    selectors = _selectors_in(words)
    references = [word for word in words if word not in selectors]
    if args.expect and not references:
        raise UsageError("--expect is for image references; the matrix says itself what its images hold.")
    if args.gate and references:
        raise UsageError(
            f"--gate judges releases of the matrix by their SBOM, and {references[0]} is a reference.",
            hint="Leave one of them out, or let a scanner judge the image.",
        )
    reach = _reach(session, plain=args.plain_http)
    rows = _rows(args, selectors, reach, verifier) if selectors or not references else []
    parsed = list(dict.fromkeys(map(parse_reference, references)))
    foreign = [
        Foreign(
            reference=reference,
            registry=reach(reference.repository),
            expected=args.expect,
            verifier=verifier,
            platform=args.platform,
        )
        for reference in parsed
    ]
    return [*rows, *foreign]


def _rows(
    args: Arguments, selectors: list[str], reach: Callable[[Repository], Registry], verifier: Verifier
) -> list[MatrixSubject]:
    project, selection = load_selection(args.matrix, selectors)
    if not args.registry:
        raise UsageError(
            f"Which registry holds the images of {selectors[0]!r}?", hint="Say --registry HOST[:PORT]/NAMESPACE"
        )
    gate = _gate(args.gate) if args.gate else None
    known_names = frozenset(spec.id for spec in project.expansion.specs)
    subjects = []
    for spec in selection.specs:
        promise, index = _promises(project, spec)
        subjects += [
            MatrixSubject(
                promise=promise,
                index=index,
                registry=reach(repository),
                known_ids=known_names,
                verifier=verifier,
                gate=gate,
            )
            for repository in repositories_of(args.registry, spec)
        ]
    return subjects


def _gate(path: Path) -> Callable[[str, Registry, str], Problem | None]:
    """Return a function that judges the release with a tag. Raises GateError and AdvisoryError.

    A release that cannot be read is refused.
    """
    from torchbake.commands._release_gate import open_gate  # noqa: PLC0415 - readers of all formats of reports

    gate = open_gate(path)

    def judge(name: str, registry: Registry, tag: str) -> Problem | None:
        try:
            gate.pass_result(gate.judge_release(name, registry, tag))
        except (CheckError, RegistryError) as error:
            return problem_of(error)
        return None

    return judge


def _promises(project: Project, spec: Spec) -> tuple[Promise, Promise | None]:
    """Return the promise of an image, and that of the index if its row has several platforms."""
    promise = _promise(project, spec)
    if len(project.expansion.groups.of(spec)) == 1:
        return promise, None
    return replace(promise, tags=(), own=platform_tag(spec)), replace(promise, index=shared_id(spec))


def _promise(project: Project, spec: Spec) -> Promise:
    """Return the promise of an image, from its id alone if its lock cannot be read."""
    try:
        return promise_of(spec, project.tags[spec.id], lock_of(project, spec))
    except LockError as error:
        return promise_of(spec, project.tags[spec.id], None, replace(problem_of(error), unknown=True))


def _engine(args: Arguments) -> tuple[Engine | None, str]:
    """Connect to the engine; return the reason if there is none."""
    if args.no_pull:
        return None, "nothing is pulled (--no-pull)"
    try:
        engine = connect()
        remove_leftovers(engine)
    except EngineError as error:
        return None, error.message
    return engine, ""


def _reach(session: Session, *, plain: bool) -> Callable[[Repository], Registry]:
    """Return a function that makes clients of repositories, with one connection for each host."""

    def sleep(seconds: float) -> None:
        if session.stopping.wait(seconds):
            raise KeyboardInterrupt

    transport = cache(partial(RegistryTransport, plain=plain, sleep=sleep))
    return lambda repository: Registry(transport(repository.host), repository)
