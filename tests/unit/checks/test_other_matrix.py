"""Images of another matrix, by their labels: they are compared with no row, and `test` says whose they are."""

from pathlib import Path

import pytest

from tests.unit.builds import small_project
from tests.unit.commands.test_test import CPU, DIGEST, REF, FakeEngine, run, words
from torchbake.build.base_image import BaseImage
from torchbake.build.prepare import ImagePreparation
from torchbake.checks.pytest_run import CheckOptions, CheckTarget
from torchbake.checks.reports import Reports
from torchbake.commands import test as command
from torchbake.commands._cases import find_cases
from torchbake.engine.image import EngineImage
from torchbake.matrix.project import Project
from torchbake.oci.labels import BASE_DIGEST, ID, INPUTS, REVISION, SOURCE

Streams = pytest.CaptureFixture[str]


@pytest.fixture
def locked(tmp_path: Path) -> Project:
    """The small matrix, with the lock of the CPU image."""
    return small_project(tmp_path)


class Labelled(FakeEngine):
    """An engine with one image under a name, with labels."""

    def __init__(self, name: str, labels: dict[str, str]) -> None:
        self._image = EngineImage(digest=DIGEST, tags=(name,), labels=labels, size_bytes=1)


def target_of(project: Project, name: str, engine: FakeEngine) -> CheckTarget:
    (case,) = find_cases(project, (), [name], engine)  # type: ignore[arg-type]
    tester = command.Tester(project=project, options=CheckOptions(), reports=Reports(folder=project.root), force=False)
    assert case.image
    return tester.target(case, case.image)


def labels_of(project: Project, changes: dict[str, str]) -> dict[str, str]:
    """Return the labels of the CPU image as this matrix makes it today on a base, with changes."""
    spec = next(spec for spec in project.expansion.specs if spec.id == CPU)
    base = BaseImage(name="debian12", image="", source="registry", digest=DIGEST, created="")
    todays = ImagePreparation.to_ask(project, print).job(spec, base).inputs
    return {ID: CPU, INPUTS: todays, BASE_DIGEST: DIGEST, SOURCE: spec.source, **changes}


OTHERS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "another source": ("base/torch:1", {INPUTS: "sha256:x", SOURCE: "https://example.com/b"}, ("example.com/b", CPU)),
    "our tag": (REF, {INPUTS: "sha256:x", SOURCE: "https://example.com/b", REVISION: "c0ffee"}, ("c0ffee",)),
    "an unknown id": ("base/torch:1", {ID: "1.0.0-cpu-x"}, ("1.0.0-cpu-x", "no such image")),
    "other inputs": ("base/torch:1", {INPUTS: "sha256:x"}, (CPU, "other inputs")),
}


@pytest.mark.parametrize("case", OTHERS)
def test_an_image_of_another_matrix_is_compared_with_no_row(
    locked: Project, monkeypatch: pytest.MonkeyPatch, capsys: Streams, case: str
) -> None:
    name, changes, words_ = OTHERS[case]
    engine = Labelled(name, labels_of(locked, changes))
    monkeypatch.setattr(command, "connect", lambda: engine)
    target = target_of(locked, name, engine)
    assert (target.row, target.promise) == ("", "")
    assert "--no-row" in words(target)
    assert run(locked, "--image", name, "--gpu", "off", "--dry-run") == 0
    text = " ".join(capsys.readouterr().err.split())
    assert all(word in text for word in (*words_, "no package is", "--matrix FILE"))


def test_an_image_of_this_matrix_is_compared_with_its_row(locked: Project) -> None:
    for name, changes, row in (
        (REF, {}, CPU), (REF, {INPUTS: "sha256:x"}, CPU), ("mine:1", {}, ""), ("mine:1", {SOURCE: "other"}, ""),
    ):  # fmt: skip
        engine = Labelled(name, labels_of(locked, changes))
        target = target_of(locked, name, engine)
        assert (target.row, target.no_row) == (row, False), (name, changes)
    init = Labelled("mine:1", {ID: "volume-permissions", INPUTS: "sha256:x", SOURCE: "https://example.com/acme"})
    assert not target_of(locked, "mine:1", init).no_row  # it has no label of its base
