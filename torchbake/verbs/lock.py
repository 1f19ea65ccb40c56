"""`lock`: exact wheels with hashes for every selected image."""

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from torchbake import console
from torchbake.builderlock import make_builder_lock
from torchbake.errors import LockError, TorchbakeError
from torchbake.files import write_text
from torchbake.lock import format_checked, lock_path, make_lock, read_lock
from torchbake.mirrors import PipConfig, read_pip_config
from torchbake.project import Project
from torchbake.render import summary
from torchbake.spec import ImageSpec
from torchbake.verbs.common import add_selectors, load_selection

SUMMARY = "lock exact wheels with hashes: images/<id>/requirements.lock"
EXAMPLES = ("nox -s lock -- cuda12", "nox -s lock -- 2.10.0 --upgrade", "nox -s lock -- all --check")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_selectors(parser)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit, not the locked ones")
    parser.add_argument("--check", action="store_true", help="only say whether the locks fit the matrix; no network")


def run(args: argparse.Namespace) -> int:
    project, selection = load_selection(args)
    specs = [spec for spec in selection.specs if isinstance(spec, ImageSpec)]
    if args.check:
        _each(specs, lambda spec: summary(spec, read_lock(project.root, spec)))
        return 0
    config = read_pip_config()
    make_builder_lock(project.root, config, upgrade=args.upgrade)
    _each(specs, lambda spec: _lock(project, spec, config, upgrade=args.upgrade))
    return 0


def _each(specs: list[ImageSpec], work: Callable[[ImageSpec], str]) -> None:
    """Do it for every image, also after one has failed; then raise what failed."""
    failed: list[str] = []
    with ThreadPoolExecutor(max_workers=4) as pool:
        futures = [(spec, pool.submit(work, spec)) for spec in specs]
        for spec, future in futures:
            try:
                console.say(f"{spec.id}: {future.result()}")
            except TorchbakeError as error:
                failed.append(f"{spec.id}: {error.message}" + (f"\n  next: {error.hint}" if error.hint else ""))
    if failed:
        raise LockError(f"{len(failed)} of {len(specs)} locks failed:\n  " + "\n  ".join(failed))


def _lock(project: Project, spec: ImageSpec, config: PipConfig, *, upgrade: bool) -> str:
    path = lock_path(project.root, spec)
    previous = path.read_text() if path.exists() else ""
    lock = make_lock(spec, config, previous=previous, upgrade=upgrade)
    text = format_checked(spec, lock)
    if text == previous:
        return f"unchanged ({summary(spec, lock)})"
    write_text(path, text)
    return f"locked {summary(spec, lock)}"
