"""`reproduce`: the bases of a build, and the reason of a failure in the error, whatever the form of the result."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.builds import BASE, RUNTIME, backend_of, preparation_of, small_project, spec_of, write_lock
from tests.unit.conftest import SMALL
from tests.unit.engines import Daemon
from torchbake.build import backend as backend_module
from torchbake.build.bakefile import BuildOptions
from torchbake.build.base_image import BaseImage
from torchbake.build.reproduce import Reproduction, ReproductionResult
from torchbake.commands import reproduce
from torchbake.commands.reproduce import _job, _reason
from torchbake.errors import EngineError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec
from torchbake.store.diff import Difference, ImageDiff

DIGESTS = ("sha256:a", "sha256:b")
ARM = f"{RUNTIME}-arm64"


@pytest.mark.parametrize(
    ("differences", "problem", "reason"),
    [
        ((), "no wheel fits", "no wheel fits"),
        ((Difference(where="layer 2", what="made/noise: content"),), "", "layer 2: made/noise: content"),
    ],
)
def test_the_reason_is_the_problem_or_the_first_difference(
    differences: tuple[Difference, ...], problem: str, reason: str
) -> None:
    comparison = None if problem else ImageDiff(digests=DIGESTS, layers=2, equal=1, differences=differences)
    assert _reason(ReproductionResult(id="cpu", comparison=comparison, problem=problem)) == reason


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    def base(spec: BaseSpec, *_: object) -> BaseImage:
        return replace(BASE, name=spec.id, python=spec.python, looked_for="")

    for module in ("torchbake.build.native", "torchbake.build.backend"):
        monkeypatch.setattr(f"{module}.host_platform", lambda: "linux/amd64")
    monkeypatch.setattr(backend_module, "builder_driver", lambda builder: "docker-container")
    monkeypatch.setattr(backend_module, "builder_platforms", lambda builder: (builder or "linux/amd64",))
    monkeypatch.setattr(reproduce, "find_base", base)
    matrix = SMALL.replace("  cudnn: 9\n", "  cudnn: 9\n  platforms: [linux/amd64, linux/arm64]\n")
    project = small_project(tmp_path / "platforms", matrix=matrix)
    write_lock(project, ARM)
    return project


def reproduction_of(project: Project, *builders: str | None) -> Reproduction:
    one, other = (backend_of(project, Daemon(), builder) for builder in builders)
    return Reproduction(
        preparation=preparation_of(project), options=BuildOptions(output="", created="", revision=""), apt=AptConfig(),
        backends=(one, other), logs=project.root,
    )  # fmt: skip


def test_an_image_for_arm64_has_the_bases_of_its_build(project: Project) -> None:
    job = _job(project, spec_of(project, ARM), reproduction_of(project, "linux/arm64", "linux/arm64"))
    assert job.base.name == "debian12-arm64"
    assert job.native is not None
    assert job.native.name == "debian12"
    assert _job(project, spec_of(project, RUNTIME), reproduction_of(project, None, None)).native is None


def test_each_builder_must_have_the_platform(project: Project) -> None:
    with pytest.raises(EngineError, match="The builder has no linux/arm64"):
        _job(project, spec_of(project, ARM), reproduction_of(project, "linux/arm64", None))
