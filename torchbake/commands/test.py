"""`test`: run all checks of images in the engine, and keep the verdicts; `smoke` runs the training jobs alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torchbake.build.prepare import ImagePreparation
from torchbake.checks.expected import missing_checks
from torchbake.checks.gpu import family_of, find_gpu
from torchbake.checks.other_matrix import OTHER_MATRIX
from torchbake.checks.pytest_run import CheckOptions, CheckTarget, Suite, TestRun
from torchbake.checks.reports import ImageResult, Reports, absent, as_json
from torchbake.checks.smoke_run import Session
from torchbake.checks.suite_digest import CHECKS, promise_digest, suite_digest
from torchbake.checks.tables import show_run
from torchbake.checks.verdict import DERIVED, Outcome, Verdict
from torchbake.checks.waivers import idle, parse_waivers
from torchbake.commands import _options as opt
from torchbake.commands._cases import ImageCase, find_cases
from torchbake.commands._selection import load_selection
from torchbake.commands._signing import FileSigning, file_signer_of
from torchbake.commands._verdicts import check_target, write_verdicts
from torchbake.core.paths import TOOLKIT
from torchbake.core.plain_text import with_reasons
from torchbake.core.signals import interruptible
from torchbake.engine.client import Engine, connect
from torchbake.engine.export import config_digest
from torchbake.engine.gpu import MODES
from torchbake.engine.image import EngineImage
from torchbake.errors import CheckError, UsageError
from torchbake.matrix.project import Project, load_project, run_folder
from torchbake.matrix.spec import Spec
from torchbake.registry.cosign import CosignSigner
from torchbake.store.layout import Layout
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step

EXAMPLES = (
    "cpu    # all checks of an image; `smoke` runs the training jobs alone",
    "cuda12 '!devel' --gpu require --jobs 2",
    "2.13.0 --nodes 3 --nproc 2",
    "cpu --only 'files.*' --only 'users.*'",
    "--image registry.example.com/team/pytorch:latest",
    "cuda12 --gpu require --write-verdict verdicts --key cosign.key",
    "all --format json > results.json",
)


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors, FileSigning):
    shard: tuple[int, int] | None = opt.shard()
    image: tuple[str, ...] = opt.option(
        "instead of a selector: any image in the engine; repeat for more", metavar="REF"
    )
    gpu: str = opt.option(
        "auto: GPU checks are not run where there is no GPU; require: then they fail (default: auto)", choices=MODES,
        default="auto",
    )  # fmt: skip
    nodes: int | None = opt.option(
        "containers of a distributed job (default: the checks')", type=opt.positive, metavar="N"
    )
    nproc: int | None = opt.option("processes in each of them (default: the checks')", type=opt.positive, metavar="N")
    only: tuple[str, ...] = opt.option("checks by id; repeat for more", metavar="GLOB")
    skip: tuple[str, ...] = opt.option("leave checks out; repeat for more", metavar="GLOB")
    waive: tuple[str, ...] = opt.option(
        "a check that may fail, and why: it is then reported as waived, never as passed; repeat for more",
        metavar="CHECK=REASON",
    )
    jobs: int = opt.jobs(by_cores=True)
    timeout: int = opt.timeout(1800, "seconds that the checks of an image may take together")
    force: bool = opt.option("check again what has passed already")
    dry_run: bool = opt.option("show what would be checked; check nothing")
    write_verdict: Path | None = opt.option(
        "also write each verdict as a file, for another machine: a folder, or for one image FILE.json", metavar="PATH"
    )
    format: opt.Format = opt.result_format()


@dataclass(frozen=True, kw_only=True)
class Tester:
    """Tests images of one project with the same options. ``gpus`` names how the images that can use a GPU get it."""

    project: Project
    options: CheckOptions
    reports: Reports
    force: bool
    gpus: Mapping[str, str] = field(default_factory=dict)

    def known_result(self, case: ImageCase) -> ImageResult | None:
        """Return the result without a test: of a missing image, or of an image that has passed already."""
        if case.image is None:
            return absent(case.name, case.ref, case.spec.id if case.spec else "")
        if self.force or self.options.partial:
            return None
        target = self.target(case, case.image)
        verdict = self.reports.find(case.name, target.digest)
        same = {"image": target.ref, "digest": target.digest, "suite": target.suite, "gpu": self.options.gpu}
        if verdict is None or not verdict.answers(**same) or missing_checks(verdict, case.judged_by):
            return None
        page = self.reports.path(case.name, target.digest).with_suffix(".md")
        return ImageResult(name=case.name, ref=case.ref, verdict=verdict, report=page, reused=True)

    def test(self, cases: Sequence[tuple[ImageCase, EngineImage]], *, jobs: int) -> list[ImageResult]:
        """Check images that the engine has, and keep each verdict at once."""
        labels = {case.name: image.labels for case, image in cases}
        pages: dict[str, Path] = {}

        def keep(target: CheckTarget, verdict: Verdict) -> Path:
            name = target.name
            pages[name] = self.reports.keep(name, verdict, labels[name], partial=self.options.partial)
            return pages[name]

        suite = Suite(CHECKS, self.options, cwd=TOOLKIT, extra=("--matrix", str(self.project.document.path.absolute())))
        folder = run_folder(self.project.state)
        targets = [self.target(case, image) for case, image in cases]
        verdicts = TestRun(suite=suite, folder=folder, keep=keep).run(targets, jobs=jobs)
        return [
            ImageResult(name=target.name, ref=target.ref, verdict=verdict, report=pages[target.name])
            for target, verdict in zip(targets, verdicts, strict=True)
        ]

    def waivers(self, case: ImageCase) -> dict[str, str]:
        """Return the waivers of an image by check, of the matrix and of the command line, which wins."""
        return {**dict(case.judged_by.waivers if case.judged_by else ()), **self.options.waivers}

    def with_notes(self, case: ImageCase, result: ImageResult, warning: str) -> ImageResult:
        """Return the result with its platform, and with a warning that names waivers that are not needed."""
        words = filter(None, (warning, self.idle(case, result)))
        return replace(result, warning="; ".join(words), platform=case.platform)

    def idle(self, case: ImageCase, result: ImageResult) -> str:
        """Name the waivers of checks that passed; nothing for a run of some checks only."""
        if result.verdict is None or self.options.partial:
            return ""
        return "; ".join(idle(result.checks, self.waivers(case)))

    def target(self, case: ImageCase, image: EngineImage) -> CheckTarget:
        how = self._decisive(case)
        return CheckTarget(
            name=case.name,
            ref=case.ref,
            row=case.judged_by.id if case.judged_by else "",
            digest=image.digest,
            waivers=self.waivers(case),
            suite=suite_digest(self.project, case.judged_by, how),
            how=how,
            promise=promise_digest(self.project, case.judged_by) if case.judged_by else "",
            origin=case.origin.ref if case.origin else "",
            no_row=case.other is not None,
        )

    def _decisive(self, case: ImageCase) -> tuple[str, ...]:
        derived = (DERIVED,) if case.origin else ()
        other = (OTHER_MATRIX,) if case.other else ()
        return (*self.options.decisive(self.gpus.get(case.name, "")), *derived, *other)


def run(args: Arguments) -> int:
    project, specs = _selection(args)
    engine = connect()
    with step("finding the images in the engine"):
        signer, cases = _signer(args), find_cases(project, specs, args.image, engine)
    if args.write_verdict:
        check_target(args.write_verdict, [case.name for case in cases])
    with interruptible():
        tester = Tester(
            project=project,
            options=_options(args),
            reports=Reports(folder=project.root / "reports"),
            force=args.force,
            gpus=_gpus(cases, engine, args.gpu, dry=args.dry_run),
        )
        with step("comparing the images with their inputs of today"):
            warnings = _warn(project, cases)
        known_results = {case.name: tested for case in cases if (tested := tester.known_result(case))}
        due = [(case, case.image) for case in cases if case.image and case.name not in known_results]
        if args.dry_run:
            _show_plan(cases, known_results, args.format)
            return 0
        known_results |= {tested.name: tested for tested in tester.test(due, jobs=args.jobs)}
    results = [tester.with_notes(case, known_results[case.name], warnings.get(case.name, "")) for case in cases]
    page = tester.reports.summarise(results, partial=tester.options.partial)
    if args.write_verdict:
        config = partial(config_digest, engine, Layout(folder=project.layout))
        with step("writing the verdicts"):
            write_verdicts(args.write_verdict, results, config, signer)
    if args.format == "json":
        console.show_json(as_json(results))
    else:
        show_run(results)
    if bad := [(result.name, result.reason) for result in results if result.outcome is not Outcome.PASSED]:
        raise CheckError(
            with_reasons(f"{len(bad)} of {len(results)} images did not pass:", bad), hint=f"Read {page}, or the table."
        )
    return 0


def _signer(args: Arguments) -> CosignSigner | None:
    """Return the signer of the verdicts, if there is one. Raises UsageError and SignatureError."""
    if args.write_verdict is None and (args.key or args.keyless):
        raise UsageError("--key and --keyless sign the files of --write-verdict.", hint="Give --write-verdict PATH.")
    return file_signer_of(args)


def _selection(args: Arguments) -> tuple[Project, tuple[Spec, ...]]:
    if not args.image:
        project, selection = load_selection(args.matrix, args.selectors, args.shard)
        return project, selection.specs
    if args.selectors:
        raise UsageError(
            f"--image names the image; {args.selectors[0]!r} would name others.", hint="Run them one after the other."
        )
    return load_project(args.matrix), ()


def _options(args: Arguments) -> CheckOptions:
    return CheckOptions(
        gpu=args.gpu, nodes=args.nodes, nproc=args.nproc, only=args.only, skip=args.skip, timeout=args.timeout,
        waivers=parse_waivers(args.waive),
    )  # fmt: skip


def _gpus(cases: Iterable[ImageCase], engine: Engine, mode: str, *, dry: bool) -> dict[str, str]:
    """Find how each image that can use a GPU gets it, by name."""
    if mode == "off":
        return {}
    session, matches = Session(), dict[str, str]()
    for case in cases:
        if case.image:
            config = {} if case.judged_by else engine.config(case.image.digest)
            if family_of(case.judged_by, config) == "cuda":
                matches[case.name] = find_gpu(engine, case.image.digest, "cuda", mode, session, dry=dry).how
    return matches


def _warn(project: Project, cases: Iterable[ImageCase]) -> dict[str, str]:
    """Warn of images that are out of date, which are tested nevertheless; return the warnings by name."""
    preparation = ImagePreparation.to_ask(project, console.say)
    warnings = {}
    for case in cases:
        if case.remark:
            warnings[case.name] = case.remark
            console.say(f"{case.name}: {case.remark}.", style="yellow" if case.other else None)
        if case.spec and case.image and (reason := preparation.why_old(case.spec, case.image)):
            warning = warnings[case.name] = f"out of date: {reason}"
            console.say(f"{case.name} is {warning}. Build it: {Command('build', case.spec.id)}", style="yellow")
            if case.name == case.ref:  # named by --image
                text = f"Its packages are compared with the lock of {project.document.path}"
                console.say(f"{text}; if another matrix made it: --matrix FILE", style="yellow")
    return warnings


def _show_plan(cases: Sequence[ImageCase], results: Mapping[str, ImageResult], form: str) -> None:
    """Show the step of each image."""
    plan, rows = [], []
    for case in cases:
        result = results.get(case.name)
        step = "test" if result is None else "reuse" if result.reused else "not there"
        reason = result.remark if result else ""
        entry = {"name": case.name, "ref": case.ref, "platform": case.platform or None}
        plan.append(entry | {"step": step, "reason": reason})
        rows.append((case.name, step, reason))
    console.show_result(form, {"images": plan}, ("image", "step", "reason"), rows)
