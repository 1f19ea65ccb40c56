"""Licenses with their packages, and expressions with several licenses that all apply."""

from hypothesis import given
from hypothesis import strategies as st

from torchbake.sbom.licenses import at_once, licenses_of
from torchbake.sbom.packages import Package
from torchbake.sbom.spdx import expression


def test_licenses_are_listed_with_their_packages() -> None:
    def package(name: str, *licenses: str) -> Package:
        return Package(kind="python", name=name, version="1", licenses=licenses)

    a, b = package("a", "MIT AND ISC"), package("b", "MIT", "our own")
    c, d = package("c", "MIT OR ISC"), package("d")
    value = licenses_of([d, c, b, a])
    assert value.by_license == (("MIT", (a, b)), ("ISC", (a,)), ("MIT OR ISC", (c,)), ("our own", (b,)))
    assert value.unlicensed == (d,)


def test_licenses_at_once_are_those_that_and_joins() -> None:
    for license_, parts in (
        ("MIT", ["MIT"]),
        ("((MIT))", ["MIT"]),
        ("MIT OR ISC", ["MIT OR ISC"]),
        ("MIT AND ISC OR Zlib", ["(MIT AND ISC) OR Zlib"]),
        (
            "Apache-2.0 AND Apache-2.0 WITH LLVM-exception AND MIT",
            ["Apache-2.0", "Apache-2.0 WITH LLVM-exception", "MIT"],
        ),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", ["MPL-2.0", "Apache-2.0 OR MIT"]),
        ("(MIT AND ISC) AND (0BSD)", ["MIT", "ISC", "0BSD"]),
        ("LicenseRef-NVIDIA-and-others AND GPL-2.0+", ["LicenseRef-NVIDIA-and-others", "GPL-2.0+"]),
        ("mit and MIT", ["MIT"]),
        ("our terms AND yours", ["our terms AND yours"]),
        ("", [""]),
    ):
        assert list(at_once(license_)) == parts, (license_, parts)


names = st.sampled_from(["MIT", "ISC", "GPL-2.0-or-later", "LicenseRef-own", "Apache-2.0 WITH LLVM-exception"])
choices = st.lists(names, min_size=2, max_size=3).map(" OR ".join)
expressions = st.lists(st.lists(names | choices, min_size=1, max_size=3), min_size=1, max_size=3)


def joined(parts: list[str]) -> str:
    return " AND ".join(f"({part})" if " OR " in part else part for part in parts)


@given(expressions)
def test_each_part_is_found_once_in_any_surroundings(groups: list[list[str]]) -> None:
    license_ = " AND ".join(f"({joined(group)})" for group in groups)
    assert at_once(license_) == tuple(dict.fromkeys(part for group in groups for part in group))


words = st.lists(st.sampled_from(["MIT", "AND", "OR", "WITH", "LLVM-exception", "(", ")", "MIT+", "x"])).map(" ".join)


@given(st.text(st.sampled_from("()+.- ")) | words)
def test_nothing_that_somebody_wrote_raises(license_: str) -> None:
    assert at_once(license_)
    assert expression(license_) or at_once(license_) == (license_,)


def test_an_expression_may_be_deep() -> None:
    deep = "MIT AND (" * 90 + "ISC" + ")" * 90
    assert expression(deep)
    assert at_once(deep) == ("MIT", "ISC")
