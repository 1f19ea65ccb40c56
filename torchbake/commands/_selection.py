"""What several commands begin with: the matrix, the images that are selected of it, and what is committed of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchbake.errors import UsageError
from torchbake.lock.image_lock import find_lock
from torchbake.lock.lockfile import Lock
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.select import Selection, select
from torchbake.matrix.spec import Spec
from torchbake.oci.reference import Repository, parse_registry


def load_selection(
    matrix: Path, selectors: Sequence[str], shard: tuple[int, int] | None = None
) -> tuple[Project, Selection]:
    """The project and what is selected. Raises UsageError when nothing is named: never everything by surprise."""
    project = load_project(matrix)
    if not selectors:
        raise UsageError(
            "Which images? Name them, or say `all`.", hint=f"There are:\n{_catalogue(project.expansion.specs)}"
        )
    selection = select(project.expansion.specs, selectors, project.tags)
    if shard:
        part, parts = shard
        selection = replace(selection, specs=selection.specs[part - 1 :: parts])
    return project, selection


def _catalogue(specs: Sequence[Spec], *, most: int = 40) -> str:
    lines = [f"    {spec.id}" for spec in specs[:most]]
    return "\n".join(lines + ([f"    … and {len(specs) - most} more"] if len(specs) > most else []))


def lock_of(project: Project, spec: Spec) -> Lock | None:
    """The image's lock; None for an init image. Raises LockError."""
    return find_lock(project.root, spec)


def repository_of(registry: str, spec: Spec) -> Repository:
    """Where an image is released: the last part of its repository's name, in the registry's namespace."""
    return parse_registry(registry) / spec.repository.rpartition("/")[2]
