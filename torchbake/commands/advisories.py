"""`advisories`: show the known vulnerabilities of images, and how soon releases had the fixes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from torchbake.advisories.finding import Severity, plain_name
from torchbake.advisories.judged import JudgedImage, Scope
from torchbake.commands import _options as opt
from torchbake.commands._advisories import required_feeds
from torchbake.commands._advisory_images import AdvisoryImages
from torchbake.commands._advisory_view import show_report
from torchbake.commands._selection import load_selection
from torchbake.core.files import write_text
from torchbake.core.signals import interruptible
from torchbake.errors import AdvisoryError, EngineError, RegistryError, UsageError, VulnerableError
from torchbake.matrix.spec import Spec
from torchbake.report.advisory_page import AdvisoryReport, ImageHistory, render_advisories
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = (
    "cpu --advisories tracker.json",
    "all --advisories tracker.json --advisories osv --severity high --fixable",
    "cuda12 devel --ignore linux-libc-dev",
    "all --released --registry ghcr.io/acme --kind debian --fail-on critical --format json",
    "all --registry ghcr.io/acme --page advisories.html",
)
Level = Literal["unknown", "negligible", "low", "medium", "high", "critical"]


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    advisories: tuple[str, ...] = opt.advisories()
    released: bool = opt.option("judge the newest releases in a registry (default: the images in the engine)")
    history: bool = opt.option("judge all releases, and show how many days after a fix a release had it")
    page: Path | None = opt.option("also write an HTML page, with the history", metavar="FILE")
    registry: str | None = opt.registry(configured=lambda args: args.released or args.history or args.page)
    plain_http: bool = opt.plain_http()
    kind: Literal["debian", "python"] | None = opt.option("only packages of this kind")
    severity: Level = opt.option("only this severity and higher ones (default: all)", default="unknown")
    fixable: bool = opt.option("only vulnerabilities with a fix")
    ignore: tuple[str, ...] = opt.option(
        "leave out this package, such as linux-libc-dev; may be repeated", metavar="PACKAGE"
    )
    fail_on: Level | None = opt.option("end with exit code 31 if an image has this severity, or a higher one")
    format: opt.Format = opt.result_format()

    @property
    def from_registry(self) -> bool:
        return self.released or self.history or self.page is not None


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors)
    if args.from_registry and not args.registry:
        raise UsageError("Releases are in a registry.", hint="Say which: --registry HOST/NAMESPACE")
    if args.fail_on and _severity(args.fail_on) < _severity(args.severity):
        raise UsageError(
            f"--severity {args.severity} leaves out vulnerabilities that --fail-on {args.fail_on} names.",
            hint=f"Give --severity {args.fail_on}, or leave it out.",
        )
    scope = Scope(
        kind=args.kind,
        severity=_severity(args.severity),
        fixable=args.fixable,
        ignored=frozenset(map(plain_name, args.ignore)),
    )
    reader = AdvisoryImages(project=project, feeds=required_feeds(args.advisories), scope=scope)
    with interruptible():
        images, histories = _read(args, reader, selection.specs)
    report = AdvisoryReport(images, histories, datetime.now(UTC).date(), " ".join(args.selectors))
    if args.page:
        write_text(args.page, render_advisories(report))
        console.say(f"the page: {args.page}")
    if args.format == "json":
        console.show_json(report.json)
    else:
        show_report(report)
    _refuse(args, images)
    return 0


def _read(
    args: Arguments, reader: AdvisoryImages, specs: Sequence[Spec]
) -> tuple[tuple[JudgedImage, ...], tuple[ImageHistory, ...]]:
    if not args.from_registry:
        return tuple(reader.built(specs)), ()
    whole = args.history or args.page is not None
    pairs = reader.released(specs, args.registry or "", plain_http=args.plain_http, whole=whole)
    return tuple(image for image, _ in pairs), tuple(history for _, history in pairs) if whole else ()


def _severity(word: Level) -> Severity:
    return Severity[word.upper()]


def _refuse(args: Arguments, images: Sequence[JudgedImage]) -> None:
    """Raise the error of the command if an image could not be judged, or has what `--fail-on` names."""
    if unread := [image for image in images if image.problem]:
        names = " ".join(image.id for image in unread)
        words = f"{len(unread)} of {len(images)} images could not be judged: {', '.join(image.id for image in unread)}."
        if args.from_registry:
            raise RegistryError(words, hint=f"Release them, or look at: {Command('validate', names)}")
        raise EngineError(words, hint=f"Run: {Command('build', names)}")
    if args.fail_on is None:
        return
    if missing := {kind: own for image in images for kind, own in image.uncovered.items()}:
        words = ", ".join(f"{kind} packages ({own})" for kind, own in missing.items())
        raise AdvisoryError(
            f"--fail-on cannot be decided: no advisory file covers {words}.",
            hint="Give a file for them with --advisories, or judge the others alone: --kind debian, --kind python",
        )
    level = _severity(args.fail_on)
    if bad := [image.id for image in images if any(one.severity >= level for one in image.findings)]:
        raise VulnerableError(
            f"{len(bad)} of {len(images)} images have a vulnerability of the severity {args.fail_on}, or of a higher "
            f"one: {', '.join(bad)}.",
            hint=f"Renew Debian packages: {Command('update', ' '.join(args.selectors))}. "
            "A Python package has its version in matrix.yaml, or in the project's lock.",
        )
    if unknown := {one.id for image in images for one in image.findings if not one.severity} if level else None:
        console.say(
            f"{len(unknown)} vulnerabilities without a severity do not count for --fail-on {args.fail_on}. "
            "To count them: --fail-on unknown",
            style="yellow",
        )
