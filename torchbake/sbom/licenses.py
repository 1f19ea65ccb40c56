"""Which licences hold for an image, and for which of its packages. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from torchbake.sbom import spdx
from torchbake.sbom.packages import Package


@dataclass(frozen=True, kw_only=True)
class Licences:
    """``held``: each licence with its packages, that of the most packages first. ``unsaid``: packages without one."""

    held: tuple[tuple[str, tuple[Package, ...]], ...]
    unsaid: tuple[Package, ...]


def licences_of(packages: Iterable[Package]) -> Licences:
    """What packages say of their licences. A package is in as many rows as licences hold for it at once."""
    rows: dict[str, set[Package]] = {}
    unsaid = set()
    for package in packages:
        for said in package.licences:
            for one in spdx.at_once(said):
                rows.setdefault(one, set()).add(package)
        if not package.licences:
            unsaid.add(package)
    held = sorted(rows.items(), key=lambda row: (-len(row[1]), row[0]))
    return Licences(held=tuple((name, tuple(sorted(own))) for name, own in held), unsaid=tuple(sorted(unsaid)))
