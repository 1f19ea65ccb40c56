"""The CI files of a new repository."""

import re
import tomllib

import pytest

from tests.pipelines import load
from torchbake.core.paths import TOOLKIT
from torchbake.matrix.pipelines import PIPELINES, choice, pipeline

SOURCES = sorted({source for files in PIPELINES.values() for source in files.values()})
CALLER = (TOOLKIT / ".github/workflows/images.yml").read_text()
RELEASED = "torchbake[nox]==1.2.3"


@pytest.mark.parametrize("source", SOURCES)
def test_a_pipeline_runs_the_toolkits_commands_with_torchbake(source: str) -> None:
    ours = (TOOLKIT / source).read_text()
    theirs = pipeline(ours, RELEASED)
    assert theirs.count("nox -s") == ours.count("nox -s")
    assert theirs.count(f'pip install "{RELEASED}"') == ours.count("pip install nox==")
    assert theirs.count(f'install: "{RELEASED}"') == ours.count("install: nox==")
    assert not re.search(r"install:? nox", theirs)
    assert " docs/" not in theirs
    assert load(theirs).keys() == load(ours).keys()


def test_a_release_calls_the_toolkits_workflows_at_its_own_tag() -> None:
    jobs = load(pipeline(CALLER, RELEASED, "v1.2.3"))["jobs"]
    where = "torchbake/torchbake/.github/workflows"
    assert {job["uses"] for job in jobs.values()} == {f"{where}/{name}-images.yml@v1.2.3" for name in jobs}
    assert {job["with"]["install"] for job in jobs.values()} == {RELEASED}


def test_in_full_what_is_called_is_written_beside_it() -> None:
    jobs = load(pipeline(CALLER, RELEASED))["jobs"]
    assert {job["uses"].removeprefix("./") for job in jobs.values()} <= PIPELINES["github-full"].keys()
    assert PIPELINES["github"].keys() < PIPELINES["github-full"].keys()


@pytest.mark.parametrize(
    ("ci", "tag", "chosen"),
    [
        ("github", "v1.2.3", "github"),
        ("github", "", "github-full"),
        ("github-full", "v1.2.3", "github-full"),
        ("gitlab", "", "gitlab"),
        ("", "", ""),
    ],
)
def test_what_no_tag_names_is_written_in_full(ci: str, tag: str, chosen: str) -> None:
    assert choice(ci, tag) == chosen


def test_all_of_them_are_in_the_package() -> None:
    shipped = tomllib.loads((TOOLKIT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {source for source in SOURCES if not source.startswith("ci/")} <= shipped["force-include"].keys()
    assert "ci" in shipped["force-include"]


def test_a_gitlab_pipeline_includes_what_is_written_beside_it() -> None:
    text = pipeline((TOOLKIT / "ci/gitlab-ci.yml").read_text(), "torchbake")
    assert "copy this file" not in text
    assert load(text)[".images"]["trigger"]["include"] == [{"local": "ci/gitlab-images.yml"}]
    assert "ci/gitlab-images.yml" in PIPELINES["gitlab"]
