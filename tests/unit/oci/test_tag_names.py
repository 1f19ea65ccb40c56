"""Immutable tags, and which names a matrix must not give to rolling ones."""

import re
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import SMALL, edited
from torchbake.errors import MatrixError
from torchbake.matrix.platforms import platform_tag
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.oci.tag_names import (
    ARTIFACTS,
    HOLD_SUFFIX,
    RECORD,
    CodeTag,
    ImmutableTag,
    artifact_tag,
    parse_code,
    parse_immutable,
    recorded_of,
    reserved_reason,
    revisions_of,
    taken_of,
)

ROOT = Path(__file__).parents[3]
OURS = "2.7.1-cuda12.6-cudnn9-runtime-debian12"


@given(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True), st.integers(0, 10**6))
def test_an_immutable_tag_is_read_as_it_was_written(name: str, revision: int) -> None:
    tag = ImmutableTag(name=name, revision=revision)
    assert parse_immutable(str(tag)) == tag


@given(st.dates(min_value=date(2000, 1, 1)), st.from_regex(r"[0-9a-f]{12}", fullmatch=True))
def test_a_tag_of_code_is_read_as_it_was_written(day: date, digits: str) -> None:
    tag = CodeTag(day=day, digits=digits)
    assert parse_code(str(tag)) == tag
    assert parse_immutable(str(tag)) is None
    assert "images with code" in reserved_reason(str(tag))


@pytest.mark.parametrize(
    "tag", ["code-20261128", "code-20261301-0123456789ab", "code-20261128-0123456789AB", "code", "latest"]
)
def test_other_tags_are_not_of_code(tag: str) -> None:
    assert parse_code(tag) is None


@pytest.mark.parametrize("tag", ["latest", OURS, "2.7-r", "2.7-r01", "-r1x", "r1"])
def test_other_tags_roll(tag: str) -> None:
    assert parse_immutable(tag) is None


def test_revisions_are_numbers() -> None:
    tags = [f"{OURS}-r{number}" for number in (10, 9, 0)] + [OURS, f"{OURS}-r2.release", "other-r11"]
    assert [tag.revision for tag in revisions_of(OURS, tags)] == [0, 9, 10]


def test_a_revision_of_which_only_the_record_is_left_is_taken() -> None:
    tags = [OURS, f"{OURS}-r0", f"{OURS}-r0.release", f"{OURS}-r4.release", f"{OURS}-r5.sbom"]
    assert [tag.revision for tag in recorded_of(OURS, tags)] == [0, 4]
    assert [tag.revision for tag in taken_of(OURS, tags)] == [0, 4, 5]


def test_the_documented_patterns_match_immutable_tags_alone() -> None:
    project = load_project(ROOT / "matrix.yaml")
    lines = [line for line in (ROOT / "docs/explanation/tags.md").read_text().splitlines() if line.startswith("| ")]
    patterns = {line.split("|")[1].strip(): re.findall(r"`([^`]*-r[^`]*)`", line.split("|")[3]) for line in lines}
    globs, (expression,) = patterns["Amazon ECR"], patterns["GitLab"]
    assert globs == [f"*-{name}-r*" for name in (*project.matrix.bases, "amd64", "arm64")]
    assert len(globs) <= 5  # filters of a repository

    def matched(tag: str, spec: Spec) -> tuple[bool, bool]:
        own = globs if isinstance(spec, ImageSpec) else ["*-r*"]
        return any(fnmatchcase(tag, glob) for glob in own), bool(re.search(expression, tag))

    for spec in project.expansion.specs:
        tags = project.tags[spec.id]
        names = (tags[0], platform_tag(spec))
        revisions = [f"{name}-r{number}" for name in names for number in (0, 12)]
        once = [*revisions, *(f"{tag}.{name}" for tag in revisions for name in (*ARTIFACTS, RECORD, HOLD_SUFFIX))]
        assert {matched(tag, spec) for tag in once} == {(True, True)}
        assert {matched(tag, spec) for tag in tags} == {(False, False)}


@given(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True), st.integers(0, 10**6))
def test_no_tag_of_a_release_can_be_a_rolling_one(name: str, revision: int) -> None:
    tag = str(ImmutableTag(name=name, revision=revision))
    assert all(map(reserved_reason, (tag, *(artifact_tag(tag, end) for end in (*ARTIFACTS, RECORD, HOLD_SUFFIX)))))


def load(text: str, folder: Path) -> None:
    path = folder / "matrix.yaml"
    path.write_text(text)
    load_project(path)


@pytest.mark.parametrize("name", ["debian12-r0", "r7", "debian12.sbom", "debian12.release", "a.sig"])
@pytest.mark.parametrize(("old", "key"), [("debian13", "bases"), ("devel", "flavors"), ("volume-permissions", "init")])
def test_a_name_that_ends_like_an_immutable_tag_is_refused(name: str, old: str, key: str, tmp_path: Path) -> None:
    text = SMALL.replace(f"{old}:", f"{name}:").replace(f"{old}]", f"{name}]").replace(f": {old}\n", f": {name}\n")
    line = next(number for number, words in enumerate(text.splitlines(), 1) if words.lstrip().startswith(f"{name}:"))
    with pytest.raises(MatrixError) as report:
        load(text, tmp_path)
    assert f"matrix.yaml:{line}: {key}.{name}: {name!r} ends in " in report.value.message


@pytest.mark.parametrize(
    ("form", "tag"),
    [
        ("{torch}-{cuda}-r7", "2.13.0-cpu-r7"),
        ("{minor}.sbom", "2.10.sbom"),
        ("latest-r0", "latest-r0"),
        ("{torch}-{cuda}-{flavor}-{base}-r0", "2.13.0-cpu-runtime-debian12-r0"),
        ("{minor}-r{cudnn}", ""),
        ("{minor}.release", "2.10.release"),
        ("code-20261128-0123456789ab", "code-20261128-0123456789ab"),
    ],
)
def test_a_form_that_gives_such_a_tag_is_refused_with_its_line(form: str, tag: str, tmp_path: Path) -> None:
    text = edited('    - "{minor}"\n', f'    - "{form}"\n')
    line = next(number for number, words in enumerate(text.splitlines(), 1) if form in words)
    with pytest.raises(MatrixError) as report:
        load(text, tmp_path)
    assert f"matrix.yaml:{line}: tags.rolling.1: {form!r}" in report.value.message
    assert not tag or f"the tag {tag!r} " in report.value.message


@pytest.mark.parametrize("text", ["runtime", "debian12", "r1x", "2.10-cuda12", "latest", "debian12-rc1", "sbom", "1.0"])
def test_other_names_are_free(text: str) -> None:
    assert reserved_reason(text) == ""
