"""Which licenses hold for an image, and for which of its packages. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from license_expression import AND, Licensing  # type: ignore[import-untyped]

from torchbake.sbom.packages import Package
from torchbake.sbom.spdx import expression


@dataclass(frozen=True, kw_only=True)
class Licenses:
    """``held``: each license with its packages, that of the most packages first. ``unsaid``: packages without one."""

    held: tuple[tuple[str, tuple[Package, ...]], ...]
    unsaid: tuple[Package, ...]


def licenses_of(packages: Iterable[Package]) -> Licenses:
    """What packages say of their licenses. A package is in as many rows as licenses hold for it at once."""
    rows: dict[str, set[Package]] = {}
    unsaid = set()
    for package in packages:
        for said in package.licenses:
            for one in at_once(said):
                rows.setdefault(one, set()).add(package)
        if not package.licenses:
            unsaid.add(package)
    held = sorted(rows.items(), key=lambda row: (-len(row[1]), row[0]))
    return Licenses(held=tuple((name, tuple(sorted(own))) for name, own in held), unsaid=tuple(sorted(unsaid)))


def at_once(said: str) -> tuple[str, ...]:
    """The licenses that hold together: ``A AND (B OR C)`` are two, ``A OR B`` is one choice."""
    # A grammar without names is enough: the names have been checked, and anybody may make a LicenseRef-….
    known = expression(said)
    return tuple(dict.fromkeys(_held(Licensing().parse(known)))) if known else (said,)


def _held(tree: Any) -> Iterator[str]:
    if isinstance(tree, AND):
        for part in tree.args:
            yield from _held(part)
    else:
        yield tree.render()
