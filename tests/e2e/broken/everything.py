"""Every broken image by its check, and which of them can be one image."""

from collections import defaultdict
from collections.abc import Iterable

from tests.e2e.broken import (
    Broken,
    files,
    libraries,
    metadata,
    own,
    parts,
    process,
    python,
    smoke,
    users,
    volume_permissions,
)

BROKEN: dict[str, Broken] = {
    **metadata.BROKEN,
    **files.BROKEN,
    **own.BROKEN,
    **users.BROKEN,
    **python.BROKEN,
    **libraries.BROKEN,
    **parts.BROKEN,
    **process.BROKEN,
    **volume_permissions.BROKEN,
    **smoke.BROKEN,
}

# None of them hides another, or sets off its check. Only those of one base and one choice of checks can be together.
TOGETHER = (
    (*(name for name in metadata.BROKEN if name != "metadata.content"),),
    (*files.BROKEN, "own.certificates", "process.layers"),
    (*users.BROKEN,),
    (
        *("metadata.content", "libraries.ldd", "libraries.ldd-path", "parts.traces"),
        *(name for name, one in python.BROKEN.items() if one.base == "cpu" and not one.row),
    ),
    ("process.signals", "process.start"),
    (*(name for name in volume_permissions.BROKEN if name != "volume-permissions.capabilities"), "process.size"),
    (*(name for name, one in BROKEN.items() if one.base == "cuda"),),
    (*(name for name, one in smoke.BROKEN.items() if one.base == "cpu"),),
)


def groups_of(names: Iterable[str]) -> list[tuple[str, ...]]:
    """The images that are made to have each of these broken: together where that can be, in the order given."""
    first = {name: group[0] for group in TOGETHER for name in group}
    groups = defaultdict[str, list[str]](list)
    for name in names:
        groups[first.get(name, name)].append(name)
    return [tuple(group) for group in groups.values()]
