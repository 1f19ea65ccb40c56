"""What several verbs share: selectors on the command line, and reading what is committed."""

import argparse
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torchbake.errors import UsageError
from torchbake.lock import read_lock
from torchbake.lockfile import Lock
from torchbake.project import Project, load_project
from torchbake.select import Selection, select
from torchbake.spec import ImageSpec, Spec

SELECTOR_HELP = (
    "which images: cpu, cuda12, cuda12.8, torch2.10, 2.10.0, py3.13, debian12, devel, volume-permissions, "
    "an id, a glob, all, !devel"
)


def add_selectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("selectors", nargs="*", metavar="SELECTOR", help=SELECTOR_HELP)


def load_selection(args: argparse.Namespace) -> tuple[Project, Selection]:
    """The project and what is selected. Raises UsageError when nothing is named: never everything by surprise."""
    project = load_project(args.matrix)
    if not args.selectors:
        raise UsageError(
            "Which images? Name them, or say `all`.", hint=f"There are:\n{_catalogue(project.expansion.specs)}"
        )
    return project, select(project.expansion.specs, args.selectors)


def _catalogue(specs: Sequence[Spec], *, most: int = 40) -> str:
    lines = [f"    {spec.id}" for spec in specs[:most]]
    return "\n".join(lines + ([f"    … and {len(specs) - most} more"] if len(specs) > most else []))


def lock_of(project: Project, spec: Spec) -> Lock | None:
    """The image's lock; None for an init image. Raises LockError."""
    return read_lock(project.root, spec) if isinstance(spec, ImageSpec) else None


def positive(name: str) -> Callable[[str], int]:
    """An argparse type: a whole number from 1."""

    def parse(text: str) -> int:
        if not text.isdigit() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{name} must be a whole number from 1, not {text!r}")
        return int(text)

    return parse


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM (a CI job that is cancelled) ends a run as orderly as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
