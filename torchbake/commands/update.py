"""`update`: renew the locks for which there are newer packages, and build the images that these change."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from torchbake.advisories.finding import Severity
from torchbake.build.images import BuildRequest, ImageBuild
from torchbake.build.plan import build_error
from torchbake.build.result import BuildResult
from torchbake.commands import _options as opt
from torchbake.commands._advisories import feeds_of_option
from torchbake.commands._fixes import FixedChange, newer_locks, say_uncovered
from torchbake.commands._selection import load_selection
from torchbake.core.files import write_text
from torchbake.core.signals import interruptible
from torchbake.debian.lockfile import debian_lock_path, format_debian_lock
from torchbake.engine.client import connect
from torchbake.errors import LockError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec, bases_of
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = (
    "all",
    "all --dry-run",
    "all --no-build --format json",
    "cpu debian12",
    "all --dry-run --advisories tracker.json",
)


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    dry_run: bool = opt.option("only show which packages are newer")
    no_build: bool = opt.option("renew the locks, and build nothing")
    advisories: tuple[str, ...] = opt.advisories("name the vulnerabilities that newer packages fix")
    jobs: int = opt.jobs()
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors)
    feeds = feeds_of_option(args.advisories)
    with interruptible():
        newer = newer_locks(project, bases_of(selection.specs))
        if not newer:
            raise LockError(
                "No base of these images has a lock of Debian packages, so there is nothing to renew.",
                hint=f"Lock them: {Command('lock', 'all --debian')}",
            )
        say_uncovered(bases_of(selection.specs), feeds)
        fixed = {name: lock.all_changes(feeds) for name, lock in newer.items()}
        changed = [spec for spec in selection.specs if spec.base.name in newer and newer[spec.base.name].changes(spec)]
        results = list[BuildResult]()
        if not args.dry_run:
            for name in (name for name, changes in fixed.items() if changes):
                lock = newer[name]
                write_text(debian_lock_path(project.root, lock.base), format_debian_lock(lock.base, lock.new))
            results = [] if args.no_build else _build(project, changed, args.jobs)
    lines = {name: [one.line for one in changes] for name, changes in fixed.items()}
    rows = [(name, line) for name, own in lines.items() for line in own]
    value = {"changes": lines, "images": [spec.id for spec in changed], "builds": [asdict(one) for one in results]}
    value |= {"vulnerabilities": {name: _vulnerabilities(changes) for name, changes in fixed.items()}} if feeds else {}
    console.show_result(args.format, value, ("base", "package"), rows)
    if error := build_error(results):
        raise error
    console.say(_summary(len(rows), len(changed), dry_run=args.dry_run))
    return 0


def _vulnerabilities(changes: Sequence[FixedChange]) -> dict[str, str]:
    """Return the severity of each vulnerability that newer packages fix, by its number."""
    fixed: dict[str, Severity] = {}
    for number, severity in (pair for one in changes for pair in one.vulnerabilities.items()):
        fixed[number] = max(severity, fixed.get(number, Severity.UNKNOWN))
    return {number: fixed[number].word for number in sorted(fixed, key=lambda number: (-fixed[number], number))}


def _build(project: Project, specs: Sequence[Spec], jobs: int) -> list[BuildResult]:
    if not specs:
        return []
    return ImageBuild(project=project, request=BuildRequest(jobs=jobs), engine=connect()).run(specs)


def _summary(packages: int, images: int, *, dry_run: bool) -> str:
    if not packages:
        return "No newer packages: the locks stay as they are."
    return f"{packages} packages {'would change' if dry_run else 'changed'}, in {images} images"
