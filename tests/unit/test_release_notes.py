"""The notes of a release: the part of the changes that belongs to its tag, and no other version."""

import re

import pytest

from tests.release_notes import main, notes_of
from torchbake.core.paths import TOOLKIT

CHANGES = "# Changes\n\n## 1.1.0\n\nNew.\n\n- [One](docs/one.md) thing.\n\n## 1.0.0\n\nOld.\n"
GALAXY = "name: pytorch\nversion: 1.1.0\n"


def test_notes_are_the_part_of_the_tag() -> None:
    notes = "New.\n\n- [One](https://github.com/torchbake/torchbake/blob/v1.1.0/docs/one.md) thing.\n"
    assert notes_of("v1.1.0", CHANGES, GALAXY) == notes
    assert notes_of("v1.1.0", CHANGES.partition("## 1.0.0")[0], GALAXY) == notes


@pytest.mark.parametrize(
    ("tag", "changes", "galaxy", "problem"),
    [
        ("v1.2.0", CHANGES, GALAXY, "'1.1.0', not '1.2.0'"),
        ("v1.0.0", CHANGES, GALAXY, "'1.1.0', not '1.0.0'"),
        ("v1.1.0", CHANGES.replace("1.1.0", "1.1.0 (unreleased)"), GALAXY, "unreleased"),
        ("v1.1.0", CHANGES, "version: 1.0.0\n", "galaxy.yml has the version 1.0.0"),
        ("v1.1.0", CHANGES, "", "galaxy.yml has the version none"),
        ("v1.1.0", "# Changes\n", GALAXY, "''"),
        ("v1.1.0", "## 1.1.0\n\n## 1.0.0\n", GALAXY, "no text"),
        ("1.1.0", CHANGES, GALAXY, "form v0.1.0"),
        ("v1.1.0rc1", CHANGES, GALAXY, "form v0.1.0"),
    ],
)
def test_a_tag_of_another_version_has_no_notes(tag: str, changes: str, galaxy: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        notes_of(tag, changes, galaxy)


def test_the_next_release_of_this_repository_has_notes(capsys: pytest.CaptureFixture[str]) -> None:
    version = re.findall(r"(?m)^## (\S+)$", (TOOLKIT / "CHANGELOG.md").read_text())[0]
    main(f"v{version}")
    assert capsys.readouterr().out.strip()
    with pytest.raises(SystemExit, match=r"v99\.0\.0") as end:
        main("v99.0.0")
    assert end.value.code not in (0, None)
    assert capsys.readouterr().out == ""
