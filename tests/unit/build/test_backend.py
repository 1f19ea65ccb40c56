"""The platforms that an executor builds here."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.builds import backend_of, small_project
from tests.unit.engines import Daemon
from torchbake.build import backend as module
from torchbake.build.backend import Backend
from torchbake.errors import EngineError


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
    monkeypatch.setattr(module, "host_platform", lambda: "linux/amd64")
    monkeypatch.setattr(module, "builder_driver", lambda builder: "docker-container")
    monkeypatch.setattr(module, "builder_platforms", lambda builder: ("linux/amd64", *([builder] if builder else [])))
    return backend_of(small_project(tmp_path), Daemon())


def test_a_platform_must_be_one_of_the_builders(backend: Backend) -> None:
    backend.check_platform("linux/amd64")
    replace(backend, builder="linux/arm64").check_platform("linux/arm64")
    with pytest.raises(EngineError, match=r"builder has no linux/arm64\. This machine does not run") as caught:
        backend.check_platform("linux/arm64")
    assert "setup" in str(caught.value.hint)


def test_other_executors_build_for_this_machine_alone(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    buildah = replace(backend, executor="buildah", builder="linux/arm64")
    buildah.check_platform("linux/amd64")
    with pytest.raises(EngineError, match="by buildah for linux/amd64 alone"):
        buildah.check_platform("linux/arm64")
    monkeypatch.setattr(module, "uses_layouts", lambda *_, **__: False)
    with pytest.raises(EngineError, match="classic image store"):
        replace(backend).check_platform("linux/arm64")


def test_scripts_run_where_no_image_can_be_exported(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "uses_layouts", lambda *_, **__: False)
    replace(backend, builder="linux/arm64").check_scripts("linux/arm64")
    with pytest.raises(EngineError, match="does not run programs"):
        backend.check_scripts("linux/arm64")
    buildah = replace(backend, executor="buildah")
    monkeypatch.setattr(module, "runs", lambda _: True)
    buildah.check_scripts("linux/arm64")
    monkeypatch.setattr(module, "runs", lambda _: False)
    with pytest.raises(EngineError, match="does not run programs"):
        buildah.check_scripts("linux/arm64")
