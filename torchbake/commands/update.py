"""`update`: renew the locks for which there are newer packages, and build the images that these change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchbake.advisories.finding import Severity
from torchbake.advisories.match import Feeds
from torchbake.build.images import BuildRequest, ImageBuild
from torchbake.build.plan import build_error, refs_of
from torchbake.build.prepare import ImagePreparation
from torchbake.build.result import BuildResult, as_json
from torchbake.commands import _options as opt
from torchbake.commands._advisories import feeds_of_option
from torchbake.commands._fixes import FixedChange, NewerLock, newer_locks, say_uncovered
from torchbake.commands._index_releases import Platforms
from torchbake.commands._selection import load_selection
from torchbake.commands._update_text import rows_of, text_of
from torchbake.commands._wheel_updates import WheelFindings, newer_wheels
from torchbake.core.files import write_text, write_texts
from torchbake.core.signals import interruptible
from torchbake.debian.lockfile import debian_lock_path, format_debian_lock
from torchbake.engine.client import connect
from torchbake.engine.image import EngineImage
from torchbake.errors import LockError, UsageError
from torchbake.lock.image_lock import format_checked, lock_path
from torchbake.matrix.platforms import bases_of
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec, pytorch_of
from torchbake.render.dockerfile import dockerfile_path, render
from torchbake.render.rendered_files import stale
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = (
    "all",
    "all --dry-run",
    "all --no-build --summary changes.md",
    "cpu debian12 --only debian --format json",
    "all --dry-run --advisories tracker.json",
)


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    only: Literal["debian", "wheels"] | None = opt.option("renew only locks of this kind (default: both)")
    dry_run: bool = opt.option("only show which packages are newer")
    no_build: bool = opt.option("renew the locks and Dockerfiles, and build nothing")
    advisories: tuple[str, ...] = opt.advisories("name the vulnerabilities that newer Debian packages fix")
    summary: Path | None = opt.option(
        "write the changes as text, with a subject first, for a commit; empty if nothing changed", metavar="FILE"
    )
    jobs: int = opt.jobs()
    format: opt.Format = opt.result_format()


@dataclass(frozen=True, kw_only=True)
class _Findings:
    """The locks of today by base and by image, and the Debian packages that changed, by base."""

    debian: Mapping[str, NewerLock]
    fixed: Mapping[str, Sequence[FixedChange]]
    wheels: WheelFindings

    @property
    def debian_changes(self) -> dict[str, list[str]]:
        return {name: [one.line for one in changes] for name, changes in self.fixed.items()}

    @property
    def wheel_changes(self) -> dict[str, list[str]]:
        return {name: one.changes for name, one in self.wheels.images.items() if one.changes}

    @property
    def withdrawn(self) -> dict[str, list[str]]:
        return {name: one.withdrawn for name, one in self.wheels.images.items() if one.withdrawn}

    def changed(self, spec: Spec) -> bool:
        """Return whether an image has a package with another version today."""
        own = self.debian.get(spec.base.id)
        return spec.id in self.wheel_changes or bool(own and own.changes(spec))

    def files(self, project: Project) -> dict[Path, str]:
        """Return the new texts of the locks, and of the Dockerfiles that they change. Raises LockError, RenderError."""
        texts = dict[Path, str]()
        for name in (name for name, changes in self.fixed.items() if changes):
            lock = self.debian[name]
            texts[debian_lock_path(project.root, lock.base)] = format_debian_lock(lock.base, lock.new)
        for spec in pytorch_of(project.expansion.specs):
            one = self.wheels.images.get(spec.id)
            if one and one.new:
                texts[lock_path(project.root, spec)] = format_checked(spec, one.new)
                rendered = stale(dockerfile_path(project.root, spec), render(spec, one.new, project.templates))
                texts |= {path: text for path, text in rendered.items() if text}
        return texts


def run(args: Arguments) -> int:
    if args.only == "wheels" and args.advisories:
        raise UsageError(
            "--only wheels renews no Debian packages, so --advisories has no effect.", hint="Leave one out."
        )
    project, selection = load_selection(args.matrix, args.selectors)
    feeds = feeds_of_option(args.advisories) if args.only != "wheels" else Feeds()
    with interruptible():
        build = None if args.dry_run or args.no_build else _build_of(project, args.jobs)
        findings = _find(args, project, selection.specs, feeds)
        changed = [spec for spec in selection.specs if findings.changed(spec)]
        results, unbuilt = list[BuildResult](), list[str]()
        if not args.dry_run:
            write_texts(findings.files(project))
        if build:
            unbuilt = _unbuilt(build, [one for one in selection.specs if not findings.changed(one)])
            results = build.run(changed) if changed else []
    debian, wheels = findings.debian_changes, findings.wheel_changes
    if args.summary:
        write_text(args.summary, text_of(debian, wheels, findings.withdrawn))
    value = {
        "changes": debian, "wheels": wheels, "yanked": findings.withdrawn, "images": [spec.id for spec in changed],
        "builds": as_json(results, changed), "unbuilt": unbuilt,
    }  # fmt: skip
    if feeds:
        value["vulnerabilities"] = {name: _vulnerabilities(changes) for name, changes in findings.fixed.items()}
    rows = rows_of(debian, wheels)
    console.show_result(args.format, value, ("lock", "package"), rows)
    for line in findings.wheels.warnings:
        console.say(line, style="yellow")
    if unbuilt:
        words = "an image is" if len(unbuilt) == 1 else f"{len(unbuilt)} images are"
        text = f"Locked earlier, but {words} not built of today's files: {Command('build', ' '.join(unbuilt))}"
        console.say(text, style="yellow")
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


def _find(args: Arguments, project: Project, specs: Sequence[Spec], feeds: Feeds) -> _Findings:
    """Find newer packages, before any file is written. Raises LockError, EngineError and BaseError."""
    debian = newer_locks(project, bases_of(specs)) if args.only != "wheels" else {}
    if not debian and args.only != "wheels":
        message = "No base of these images has a lock of Debian packages, so there is nothing to renew."
        hint = f"Lock them: {Command('lock', 'all --debian')}"
        if args.only:
            raise LockError(message, hint=hint)
        console.say(f"No base has a lock of Debian packages, so only wheels are renewed. {hint}", style="dim")
    if debian:
        say_uncovered(bases_of(specs), feeds)
    fixed = {name: lock.all_changes(feeds) for name, lock in debian.items()}
    wheels = newer_wheels(project, specs) if args.only != "debian" else WheelFindings()
    return _Findings(debian=debian, fixed=fixed, wheels=wheels)


def _build_of(project: Project, jobs: int) -> ImageBuild:
    """Return the build of the changed images. Raises EngineError, before any lock is renewed, if none can be built."""
    build = ImageBuild(project=project, request=BuildRequest(jobs=jobs), engine=connect())
    build.check()
    return build


def _unbuilt(build: ImageBuild, specs: Sequence[Spec]) -> list[str]:
    """Return the ids of images in the engine that are not of today's files, such as after a build that failed."""
    project = build.project
    refs = refs_of(specs, project.tags)
    images = build.engine.tagged_images(refs.values()) if build.engine else {}
    preparation = ImagePreparation.to_ask(project, console.say)
    platforms = Platforms(project=project, preparation=preparation)

    def is_old(spec: Spec, image: EngineImage) -> bool:
        reason = preparation.why_old(spec, image)
        # The base of a new lock may not have been made yet: the labels name the one of the image.
        return bool(platforms.why_old(spec, image.labels) if reason is None else reason)

    pairs = [(spec, images.get(refs[spec.id])) for spec in specs]
    return [spec.id for spec, image in pairs if image and is_old(spec, image)]


def _summary(packages: int, images: int, *, dry_run: bool) -> str:
    if not packages:
        return "No newer packages: the locks stay as they are."
    return f"{packages} packages {'would change' if dry_run else 'changed'}, in {images} images"
