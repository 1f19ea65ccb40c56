"""Licenses of an image, each with its packages. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from license_expression import AND, Licensing  # type: ignore[import-untyped]

from torchbake.sbom.packages import Package
from torchbake.sbom.spdx import expression


@dataclass(frozen=True, kw_only=True)
class Licenses:
    """Licenses with their packages (``by_license``), most packages first, and packages without a license
    (``unlicensed``).
    """

    by_license: tuple[tuple[str, tuple[Package, ...]], ...]
    unlicensed: tuple[Package, ...]


def licenses_of(packages: Iterable[Package]) -> Licenses:
    """Group packages by their licenses. A package is in a row for each license that applies to it."""
    rows: dict[str, set[Package]] = {}
    unlicensed = set()
    for package in packages:
        for license_ in package.licenses:
            for one in at_once(license_):
                rows.setdefault(one, set()).add(package)
        if not package.licenses:
            unlicensed.add(package)
    holders = sorted(rows.items(), key=lambda row: (-len(row[1]), row[0]))
    return Licenses(
        by_license=tuple((name, tuple(sorted(own))) for name, own in holders), unlicensed=tuple(sorted(unlicensed))
    )


def at_once(license_: str) -> tuple[str, ...]:
    """Split an expression into licenses that all apply: ``A AND (B OR C)`` are two, ``A OR B`` is one choice."""

    def terms(tree: Any) -> Iterator[str]:
        if isinstance(tree, AND):
            for part in tree.args:
                yield from terms(part)
        else:
            yield tree.render()

    # A grammar without names is enough, as `expression` has checked the names, and a LicenseRef-… is free.
    spdx_expression = expression(license_)
    return tuple(dict.fromkeys(terms(Licensing().parse(spdx_expression)))) if spdx_expression else (license_,)
