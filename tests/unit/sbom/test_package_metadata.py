"""Metadata of packages: complete, old, broken, and in unusual encodings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchbake.sbom import spdx
from torchbake.sbom.package_metadata import read_copyright, read_debs, read_system, read_wheel, root_of, stanzas

FORMAT = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
anything = st.text() | st.lists(
    st.sampled_from([
        "Name: a", "Name:", "Version: 1", "License: MIT", "License-Expression: ((", "Classifier: License :: x",
        "License-File: L", " folded", "", "Package: b", "Files: *", FORMAT.strip(), "Status: install ok installed",
        "Source: c (1)", "\x00", "\x85", "\u2028", "ID='", "=", ":",
    ])
).map("\n".join)  # fmt: skip


def licenses(*lines: str) -> tuple[str, ...]:
    return read_wheel(
        "\n".join(["Metadata-Version: 2.4", "Name: a", "Version: 1", *lines, "", "License: no"]), ""
    ).licenses


def test_the_most_exact_of_what_a_wheel_says_is_its_license() -> None:
    for lines, expected in (
        (["License-Expression: mit"], ["MIT"]),
        (["License-Expression: apache-2.0 or BSD-2-clause", "License: BSD"], ["Apache-2.0 OR BSD-2-Clause"]),
        (["License-Expression: LicenseRef-NVIDIA-Proprietary"], ["LicenseRef-NVIDIA-Proprietary"]),
        (["License-Expression: our own terms"], ["our own terms"]),
        (["License: BSD-3-Clause", "Classifier: License :: Other/Proprietary License"], ["BSD-3-Clause"]),
        (["License: Apache 2.0", "Classifier: License :: Other/Proprietary License"], ["Apache-2.0"]),
        (["License: NVIDIA Proprietary Software"], ["NVIDIA Proprietary Software"]),
        (["License: BSD", "Classifier: License :: OSI Approved :: MIT License"], ["MIT"]),
        (["License: BSD", "Classifier: License :: OSI Approved :: BSD License"], ["BSD"]),
        (["Classifier: License :: OSI Approved :: BSD License"], ["BSD"]),
        (["Classifier: License :: OSI Approved", "Classifier: Topic :: MIT License"], []),
        (
            [f"Classifier: License :: OSI Approved :: {name}" for name in ("MIT License", "ISC License (ISCL)")],
            ["ISC", "MIT"],
        ),
        (["License: UNKNOWN"], []),
        (["License: The MIT License (MIT)", "   |", "   | Copyright (c) somebody"], ["MIT"]),
        (["License: Copyright (c) somebody", "  All rights", "Classifier: License :: Freeware"], ["Freeware"]),
        ([f"License: {'Redistribution and use in source ' * 9}"], []),
        (["License-File: LICENSE", "License-File: COPYING"], ["said in COPYING, LICENSE"]),
        (["License-File: LICENSE", "License: MIT"], ["MIT"]),
        ([], []),
    ):
        assert list(licenses(*lines)) == expected, (lines, expected)


def test_a_name_and_a_version_are_found_in_what_is_there() -> None:
    for text, folder, names in (
        ("Name: Foo_Bar.baz\nVersion: 1.0+cpu\n", "x-2.dist-info", ("foo-bar-baz", "1.0+cpu")),
        ("\ufeffName: a\r\nVersion: 1\r\n\r\nName: b", "x-2.dist-info", ("a", "1")),
        ("\n\nName: a\nVersion: 1\n", "x-2.dist-info", ("a", "1")),
        ("Version: 1\n", "My.Pkg-2.0.dist-info", ("my-pkg", "1")),
        ("Name:  \nVersion:\n", "My_Pkg-2.0.dist-info", ("my-pkg", "2.0")),
        ("", "nameless.dist-info", ("nameless", "")),
        ("", ".dist-info", ("", "")),
        ("no header at all\nName: a\n", "b-3.dist-info", ("b", "3")),
        ("Name: caf\ufffd\nVersion: 1\n", "x-2.dist-info", ("caf", "1")),
        ("Name: a\nName: b\nVersion: 1\n 2\n", "x-2.dist-info", ("a", "12")),
    ):
        wheel = read_wheel(text, folder)
        assert (wheel.name, wheel.version) == names, text


def test_a_root_is_the_folder_that_the_metadata_are_in() -> None:
    assert root_of("opt/lib/a-1.dist-info/METADATA") == "/opt/lib"
    assert root_of("a-1.dist-info/METADATA") == "/"


def test_a_source_package_defaults_to_the_package_itself() -> None:
    text = "Package: a\nVersion: 1\n\nPackage: b\nSource: c\nVersion: 2+b1\n\nPackage: d\nSource: e (3)\nVersion: 4\n"
    matches = [(deb.source, deb.source_version) for deb in read_debs(text).packages]
    assert matches == [("a", "1"), ("c", "2+b1"), ("e", "3")]


def test_paragraphs_have_folded_fields_and_comments() -> None:
    text = "# no\nA: 1\n 2\n\t3\nb : 4:5\n\n\n \nC:\n"
    assert list(stanzas(text)) == [{"a": "1\n2\n3", "b": "4:5"}, {"c": ""}]
    assert list(stanzas(" folded under nothing\nA: 1")) == [{"a": "1"}]


def test_debians_short_names_become_spdx_if_they_are_certain() -> None:
    for text, expected in (
        ("GPL-2+", "GPL-2.0-or-later"),
        ("GPL-3", "GPL-3.0-only"),
        ("LGPL-2.1+", "LGPL-2.1-or-later"),
        ("GFDL-NIV-1.3+", "GFDL-1.3-no-invariants-or-later"),
        ("Expat", "MIT"),
        ("BSD-3-clause", "BSD-3-Clause"),
        ("GPL-2+ or BSD-2-clause", "GPL-2.0-or-later OR BSD-2-Clause"),
        ("GPL-2+ and Expat", "GPL-2.0-or-later AND MIT"),
        ("GPL-2+ and Expat or ISC", "GPL-2+ and Expat or ISC"),
        ("GPL-1+ or Artistic, and Expat", "GPL-1+ or Artistic, and Expat"),
        ("GPL-2+ with Libtool exception", "GPL-2+ with Libtool exception"),
        ("public-domain", "public-domain"),
        ("Apache-2.0 with LLVM-exception", "Apache-2.0 WITH LLVM-exception"),
        ("This software is provided 'as-is', without any", None),
        ("Permission to use and to copy", None),
    ):
        assert spdx.of_debian(text) == expected, (text, expected)


def test_a_copyright_file_is_what_its_files_are_under() -> None:
    text = (
        f"{FORMAT}License: Zlib\n\nFiles: *\nLicense: GPL-2+ or Expat\n\nFiles: b\nLicense: ISC\n text, of which the"
        " first line alone is a name\n\nFiles: c\nLicense:\n\nLicense: GPL-2+\n The text of one of them\n"
    )
    assert read_copyright(text).licenses == ("GPL-2.0-or-later OR MIT", "ISC", "Zlib")


def test_an_odd_line_in_a_licenses_text_hides_nothing_after_it() -> None:
    for odd in (" text\f", " te\fxt", " te\x85xt", " te\u2028xt", " te\x85License: MIT", "no field", ":", "#"):
        text = f"{FORMAT}\nFiles: *\nLicense: GPL-2+\n text\n{odd}\n text\n\nFiles: b\nLicense: ISC\n"
        assert read_copyright(text).licenses == ("GPL-2.0-or-later", "ISC"), odd


def test_paragraphs_of_licenses_count_where_no_file_has_one() -> None:
    assert read_copyright(f"{FORMAT}\nLicense: Expat\n\nLicense: ISC\n").licenses == ("ISC", "MIT")


@pytest.mark.parametrize(
    "text", ["", "This is bash.\n\nLicense: GPL-3+\n", "Format: my own\n\nFiles: *\nLicense: MIT\n"]
)
def test_a_copyright_file_for_people_alone_says_nothing(text: str) -> None:
    assert read_copyright(text).licenses == ()


def test_os_release_may_be_quoted_and_broken() -> None:
    system = read_system('# a comment\nNAME="Debian GNU/Linux"\nID=\'debian\'\nVERSION_ID="13"\nBROKEN="x\n')
    assert (system.id, system.version) == ("debian", "13")


@pytest.mark.parametrize(
    "text", ["(" * 500, "(" * 5000 + "MIT" + ")" * 5000, "MIT AND " * 200 + "MIT", "\x00", "MIT\nMIT"]
)
def test_what_is_no_expression_is_none(text: str) -> None:
    assert spdx.expression(text) is None


@given(anything, anything)
def test_nothing_that_somebody_wrote_raises(text: str, folder: str) -> None:
    wheel = read_wheel(text, folder)
    assert wheel == read_wheel(text, folder)
    assert all(deb.name and not deb.version.split()[1:] for deb in read_debs(text).packages)
    read_copyright(FORMAT + text)
    read_system(text)
