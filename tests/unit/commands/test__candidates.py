"""Candidates for a release: the image must be up to date, and tested with its digest."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.builds import BASE, INIT, preparation_of, small_project, spec_of
from tests.unit.checks.test_verdict import check, verdict
from torchbake.build.plan import ref_of
from torchbake.build.prepare import ImagePreparation
from torchbake.checks.reports import Reports
from torchbake.checks.suite_digest import promise_digest, suite_digest
from torchbake.commands._candidates import candidate_of
from torchbake.core.files import write_text
from torchbake.engine.image import EngineImage
from torchbake.errors import CheckError
from torchbake.matrix.project import Project
from torchbake.oci.labels import INPUTS
from torchbake.release.candidate import Candidate
from torchbake.release.transport import ReadyImage

DIGEST, MANIFEST = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr("torchbake.commands._candidates.missing_checks", lambda verdict, spec: ())
    project = small_project(tmp_path)
    write_text(project.state / f"bases/{BASE.name}.json", json.dumps(BASE.__dict__))
    return project


HOW = ("nodes=2", "waive a.b=it is so")


def release(project: Project, *, inputs: str = "", promise: str = "", suite: str = "") -> str:
    """The digest that may be released of an image of these inputs, tested for this promise; else today's."""
    return candidate_for(project, inputs=inputs, promise=promise, suite=suite).digest


def candidate_for(
    project: Project, sent_bytes: Callable[[str], str] = str, *, inputs: str = "", promise: str = "", suite: str = ""
) -> Candidate:
    """The same with all of it; ``sent_bytes`` gives the digest of its manifest."""
    spec = spec_of(project, INIT)
    labels = {INPUTS: inputs or preparation_of(project).job(spec, BASE).inputs}
    images = {ref_of(spec, project.tags[INIT]): EngineImage(digest=DIGEST, tags=(), labels=labels, size_bytes=1)}
    lines = {
        "digest": DIGEST, "promise": promise or promise_digest(project, spec), "how": HOW,
        "suite": suite or suite_digest(project, spec, HOW),
    }  # fmt: skip
    reports = Reports(folder=project.root / "reports")
    reports.keep(INIT, verdict(check()).model_copy(update=lines), {}, partial=False)
    return candidate_of(
        ImagePreparation.to_ask(project, print),
        spec,
        images,
        {},
        prepare=lambda image: ReadyImage(digest=sent_bytes(image)),
    )


def test_what_is_up_to_date_and_was_tested_may_be_released(project: Project) -> None:
    assert release(project) == DIGEST


def test_a_classic_stores_digest_differs_from_the_tested_one(project: Project) -> None:
    candidate = candidate_for(project, lambda image: {DIGEST: MANIFEST}[image])
    assert (candidate.digest, candidate.tested) == (MANIFEST, DIGEST)


def test_an_image_of_other_files_than_todays_may_not(project: Project) -> None:
    with pytest.raises(CheckError, match="is out of date: its inputs changed"):
        release(project, inputs="sha256:old")


def test_a_base_that_was_never_here_does_not_refuse_an_image(project: Project) -> None:
    (project.state / f"bases/{BASE.name}.json").unlink()
    assert release(project, inputs="sha256:old") == DIGEST


def test_a_verdict_on_another_promise_does_not_count(project: Project) -> None:
    with pytest.raises(CheckError, match="the matrix promises something else of it, or waives other checks"):
        release(project, promise="sha256:old")


def test_a_verdict_of_other_checks_than_todays_does_not_count(project: Project) -> None:
    with pytest.raises(CheckError, match="was tested by other checks than today's"):
        release(project, suite="sha256:old")


def test_a_verdict_that_lacks_checks_does_not_count(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchbake.commands._candidates.missing_checks", lambda verdict, spec: ("files.owners",))
    with pytest.raises(CheckError, match=r"lacks 1 of today's checks: files\.owners"):
        release(project)


def test_an_image_whose_labels_are_untrue_may_not(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchbake.commands._candidates.untrue_label", lambda root, labels: "its label is empty")
    with pytest.raises(CheckError, match="is out of date: its label is empty") as refused:
        release(project)
    assert "build" in str(refused.value.hint)
