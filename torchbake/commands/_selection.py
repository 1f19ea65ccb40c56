"""The start of most commands: read the matrix, and select images of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchbake.core.files import read_text
from torchbake.errors import UsageError
from torchbake.lock.lockfile import Lock
from torchbake.matrix.platforms import one_of_each_tag
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.select import Selection, select
from torchbake.matrix.spec import ImageSpec, Spec, pytorch_of
from torchbake.oci.reference import Repository, parse_registry
from torchbake.projects.outdated import read_or_explain


def load_selection(
    matrix: Path, selectors: Sequence[str], shard: tuple[int, int] | None = None, *, locked_bases: bool = True
) -> tuple[Project, Selection]:
    """Load the project and select images. Raises UsageError if nothing is named; `all` must be typed."""
    project = load_project(matrix, locked_bases=locked_bases)
    if not selectors:
        raise UsageError(
            "Which images? Name them, or say `all`.", hint=f"There are:\n{_catalogue(project.expansion.specs)}"
        )
    return project, shard_of(_select(project, selectors), shard)


def load_image(matrix: Path, selectors: Sequence[str], owner: str, hint: str) -> tuple[Project, ImageSpec]:
    """Load the project and select a PyTorch image. Raises UsageError for several or none; ``owner`` needs the image.

    Images that differ by their platform alone are one image: the first of them is returned.
    """
    project, selection = load_selection(matrix, selectors)
    specs = one_of_each_tag(pytorch_of(selection.specs))
    if len(specs) != 1:
        names = f" ({', '.join(spec.id for spec in specs[:3])}{', …' if len(specs) > 3 else ''})" if specs else ""
        raise UsageError(f"{owner} gets one image, but this selects {len(specs)}{names}.", hint=hint)
    return project, specs[0]


def shard_of(selection: Selection, shard: tuple[int, int] | None) -> Selection:
    """Return the I-th of N parts; a part without an image is no error."""
    part, parts = shard or (1, 1)
    return replace(selection, specs=selection.specs[part - 1 :: parts])


def _select(project: Project, selectors: Sequence[str]) -> Selection:
    """Select images by words; `@FILE` names a file with words, such as `list --format ids` writes.

    Empty files select nothing, whatever other words say. If nothing is due, `publish @due.txt '!devel'` must not
    publish everything except devel.
    """
    names = [selector for selector in selectors if selector.startswith("@")]
    words = [word for name in names for word in _words(name)]
    if names and not words:
        return Selection(specs=(), left_out=())
    others = [selector for selector in selectors if selector not in names]
    return select(project.expansion.specs, [*words, *others], project.tags)


def _words(name: str) -> list[str]:
    try:
        return read_text(Path(name[1:])).split()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"{name}: cannot be read: {reason}.", hint="It holds words, one a line.") from None


def _catalogue(specs: Sequence[Spec], *, most: int = 40) -> str:
    lines = [f"    {spec.id}" for spec in specs[:most]]
    return "\n".join(lines + ([f"    … and {len(specs) - most} more"] if len(specs) > most else []))


def lock_of(project: Project, spec: Spec) -> Lock | None:
    """Read the lock of an image; None for an init image. Raises LockError."""
    return read_or_explain(project.root, spec) if isinstance(spec, ImageSpec) else None


def repository_of(registry: str, spec: Spec) -> Repository:
    """Return the repository of an image's releases: the last part of its name, in the namespace of the registry."""
    return parse_registry(registry) / spec.repository.rpartition("/")[2]
