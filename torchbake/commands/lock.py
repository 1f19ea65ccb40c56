"""`lock`: resolve exact wheels, with hashes, for the selected images."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from torchbake.build.own_wheels_check import check_own_wheels
from torchbake.commands import _options as opt
from torchbake.commands._debian_lock import check_debian, lock_debian
from torchbake.commands._selection import load_selection
from torchbake.core.files import write_text
from torchbake.errors import LockError, TorchbakeError, UsageError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.builder_lock import check_builder_online, make_builder_lock, read_builder_lock
from torchbake.lock.image_lock import format_checked, lock_path, lock_text
from torchbake.lock.lockfile import read_lock_text
from torchbake.lock.newest import odd_versions
from torchbake.lock.project_inputs import kind_of
from torchbake.lock.yanked import yanked_versions
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, pytorch_of
from torchbake.projects.lock import check_online, lock_image
from torchbake.projects.outdated import read_or_explain
from torchbake.projects.package_sources import read_package_sources
from torchbake.projects.wheels_folder import unused_wheels
from torchbake.render.dockerfile import summary
from torchbake.ui import console
from torchbake.ui.steps import step

EXAMPLES = ("cuda12", "2.10.0 --upgrade", "all --check", "all --check --resolve", "all --debian")


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    upgrade: bool = opt.option("take the newest versions that fit, not the locked ones")
    upgrade_builder: bool = opt.option("also lock the builders' own uv again, after which every image is built again")
    check: bool = opt.option("only say whether the locks fit the matrix and their wheels are there; no network")
    debian: bool = opt.option("lock the Debian packages of the images' bases, by apt in a container; not the wheels")
    resolve: bool = opt.option("with --check: resolve again, and report where the indexes no longer agree")


def run(args: Arguments) -> int:
    renewed = args.debian and args.upgrade  # bases too, so those of an earlier push do not count
    project, selection = load_selection(args.matrix, args.selectors, locked_bases=not renewed)
    if args.check and (args.upgrade or args.upgrade_builder):
        raise UsageError("--check and --upgrade exclude each other: --check changes nothing.", hint="Give one of them.")
    if args.resolve and not args.check:
        raise UsageError("--resolve works only with --check.", hint="Give --check with it.")
    if args.debian:
        if args.upgrade_builder or args.resolve:
            raise UsageError("--debian locks Debian packages alone.", hint="Give it with --check or --upgrade.")
        if args.check:
            check_debian(project, selection.specs)
        else:
            lock_debian(project, selection.specs, upgrade=args.upgrade)
        return 0
    specs = pytorch_of(selection.specs)
    config = read_package_sources(project)
    if args.check:
        _check(project, specs, config if args.resolve else None)
        return 0
    if make_builder_lock(project.root, config, upgrade=args.upgrade_builder) and args.upgrade_builder:
        console.say("images/builder.lock: made again; every image is built again with it", style="yellow")
    _each("locking", specs, lambda spec: _lock(project, spec, config, upgrade=args.upgrade))
    texts = (lock_text(project.root, spec) for spec in project.expansion.specs)
    if unused := unused_wheels(project.root, texts):
        console.say(f"no lock names these wheels any more, so they can be removed: {', '.join(unused)}", style="yellow")
    return 0


def _check(project: Project, specs: list[ImageSpec], config: PipConfig | None) -> None:
    """Check locks, with a ``config`` also against the package indexes. Raises LockError."""

    def check(spec: ImageSpec) -> str:
        lock = read_or_explain(project.root, spec)
        check_own_wheels(project.root, spec, lock)
        if config:
            check_online(project.root, spec, lock, config)
            for yanked in yanked_versions(spec, lock, lock.pins.values(), config):
                console.say(f"{spec.id}: {yanked}", style="yellow")
        return summary(spec, lock)

    _each("checking", specs, check)
    builder = read_builder_lock(project.root)
    if config:
        check_builder_online(builder, config)


def _each(doing: str, specs: list[ImageSpec], work: Callable[[ImageSpec], str]) -> None:
    """Do the work for every image. Raises one LockError for all failures at the end."""
    failed: list[str] = []
    count = f"{len(specs)} images" if len(specs) > 1 else "".join(spec.id for spec in specs)
    with step(f"{doing} {count}") as progress, ThreadPoolExecutor(max_workers=4) as pool:
        futures = [(spec, pool.submit(work, spec)) for spec in specs]
        for number, (spec, future) in enumerate(futures, 1):
            progress.look(f"{number} of {len(specs)}: {spec.id}")
            try:
                console.say(f"{spec.id}: {future.result()}")
            except TorchbakeError as error:
                failed.append(f"{spec.id}: {error.message}" + (f"\n  next: {error.hint}" if error.hint else ""))
    if failed:
        raise LockError(f"{len(failed)} of {len(specs)} locks failed:\n  " + "\n  ".join(failed))


def _lock(project: Project, spec: ImageSpec, config: PipConfig, *, upgrade: bool) -> str:
    path = lock_path(project.root, spec)
    previous = read_lock_text(path, spec.id) if path.exists() else ""
    if upgrade and spec.project and kind_of(spec.project.lock) != "pyproject":
        console.say(f"{spec.id}: --upgrade changes nothing in {spec.project.lock_path}; upgrade that", style="yellow")
    lock = lock_image(project.root, spec, config, previous=previous, upgrade=upgrade)
    for odd in odd_versions(spec, lock, config, "" if upgrade else previous):
        console.say(f"{spec.id}: {odd}", style="yellow")
    text = format_checked(spec, lock)
    if text == previous:
        return f"unchanged ({summary(spec, lock)})"
    write_text(path, text)
    return f"locked {summary(spec, lock)}"
