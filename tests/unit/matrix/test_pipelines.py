"""The CI files of a new repository."""

import pytest
import yaml

from torchbake.core.paths import TOOLKIT
from torchbake.matrix.pipelines import PIPELINES, pipeline

SOURCES = sorted({source for files in PIPELINES.values() for source in files.values()})


@pytest.mark.parametrize("source", SOURCES)
def test_it_runs_what_the_toolkits_own_runs_with_torchbake_installed(source: str) -> None:
    ours = (TOOLKIT / source).read_text()
    theirs = pipeline(ours, "torchbake[nox]==1.2.3")
    assert theirs.count("nox -s") == ours.count("nox -s")
    assert theirs.count('pip install "torchbake[nox]==1.2.3"') == ours.count("pip install nox")
    assert "pip install nox" not in theirs
    assert " docs/" not in theirs
    for name in ("entrypoints", "layers", "templates", "tests/images"):
        assert f"{name}/" not in theirs


def test_what_decides_a_push_is_what_a_repository_has() -> None:
    theirs = yaml.safe_load(pipeline((TOOLKIT / ".github/workflows/images.yml").read_text(), "torchbake"))
    assert theirs[True]["push"]["paths"] == ["matrix.yaml", "images/**", ".github/workflows/images.yml"]


def test_a_gitlab_pipeline_includes_what_is_written_beside_it() -> None:
    text = pipeline((TOOLKIT / "ci/gitlab-ci.yml").read_text(), "torchbake")
    assert "copy this file" not in text
    assert yaml.safe_load(text)[".images"]["trigger"]["include"] == [{"local": "ci/gitlab-images.yml"}]
    assert "ci/gitlab-images.yml" in PIPELINES["gitlab"]
