"""Find the packages that require each package of a project's lock: the layers of an image follow from that. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from packaging.utils import canonicalize_name

from torchbake.errors import LockError
from torchbake.projects.packages import ProjectPackage

_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])? ?(?:==|@)")
_VIA = re.compile(r"^\s+#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?\s*$", flags=re.MULTILINE)


def via_of(requirements: str) -> dict[str, set[str]]:
    """Return the packages that require each package, by the comments ``# via`` in uv's output."""
    via = dict[str, set[str]]()
    for block in re.split(r"\n(?=\S)", requirements):
        if match := _NAME.match(block):
            names = (canonicalize_name(name) for name in _VIA.findall(block) if name != "via")
            via.setdefault(canonicalize_name(match[1]), set()).update(names)
    return via


def with_via(packages: Iterable[ProjectPackage], via: Mapping[str, Collection[str]]) -> tuple[ProjectPackage, ...]:
    """Return packages with their requirers, as far as these are packages of the same lock."""
    complete = tuple(packages)
    names = {package.name for package in complete}
    return tuple(replace(each, via=tuple(sorted(names & {*via.get(each.name, ())} - {each.name}))) for each in complete)


def check_complete(packages: Iterable[ProjectPackage], via: Mapping[str, Collection[str]], path: str) -> None:
    """Raise LockError if ``via`` has a package that a lock lacks, although another package requires it."""
    for name in sorted(via.keys() - {package.name for package in packages}):
        requirers = ", ".join(sorted(via[name])) or "a package"
        raise LockError(
            f"{path}: has no {name}, which {requirers} requires for this Python on x86_64 Linux.",
            hint="Lock the project on Linux, or for it: uv pip compile --python-platform x86_64-manylinux_2_28",
        )
