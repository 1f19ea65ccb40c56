"""Newer and withdrawn wheels of locked images, by the resolver and the pages of indexes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.builds import DEVEL, INIT, RUNTIME, small_project, spec_of
from tests.unit.conftest import lock_for, pin
from torchbake.commands import _wheel_updates
from torchbake.commands._wheel_updates import newer_wheels
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.image_lock import read_lock
from torchbake.lock.lockfile import Lock, Pin
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, ProjectSpec

YANKED = {"numpy": "breaks", "torch": "burns"}


class Indexes:
    """Package indexes that have newer versions, by package. The wheels of ``missing`` images are not there."""

    def __init__(self) -> None:
        self.newer = dict[str, str]()
        self.missing = set[str]()
        self.silent = list[str]()
        self.asked = list[list[Pin]]()

    def lock(self, root: Path, spec: ImageSpec, config: PipConfig, *, previous: str, upgrade: bool) -> Lock:
        assert upgrade
        if spec.id in self.missing:
            raise LockError("uv found no versions that fit", hint="Correct the row.")
        pins = read_lock(root, spec).pins
        # Today the index has one more file of each version.
        more = {name: replace(one, hashes=(*one.hashes, f"sha256:{'f' * 64}")) for name, one in pins.items()}
        return lock_for(
            spec, [pin(name, self.newer[name]) if name in self.newer else one for name, one in more.items()]
        )

    def reasons(self, spec: ImageSpec, pins: Sequence[Pin], config: PipConfig) -> tuple[dict[Pin, str], list[str]]:
        self.asked.append([*pins])
        return {one: YANKED[one.name] for one in pins if one.name in YANKED}, self.silent


@pytest.fixture
def indexes(monkeypatch: pytest.MonkeyPatch) -> Indexes:
    indexes = Indexes()
    monkeypatch.setattr(_wheel_updates, "read_package_sources", lambda _: PipConfig())
    monkeypatch.setattr(_wheel_updates, "lock_image", indexes.lock)
    monkeypatch.setattr(_wheel_updates, "yank_reasons", indexes.reasons)
    monkeypatch.setattr(_wheel_updates, "odd_versions", lambda spec, new, config, text: [f"{spec.flavor} is odd"])
    return indexes


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return small_project(tmp_path)


def specs_of(project: Project) -> list[Any]:
    return [spec_of(project, name) for name in (RUNTIME, DEVEL, INIT)]


def test_a_newer_version_keeps_the_hashes_of_the_others(project: Project, indexes: Indexes) -> None:
    indexes.newer = {"numpy": "2.5.0"}
    found = newer_wheels(project, specs_of(project))
    assert {*found.images} == {RUNTIME, DEVEL}
    one = found.images[RUNTIME]
    assert one.new
    assert one.changes == ["numpy 2.4.6 -> 2.5.0 (2.4.6 is yanked: breaks)"]
    assert one.withdrawn == ["torch 2.13.0+cpu is yanked: burns"]
    assert {name: each for name, each in one.new.pins.items() if name != "numpy"} == {
        name: each for name, each in one.old.pins.items() if name != "numpy"
    }
    assert one.odd == ["runtime is odd"]


def test_more_files_of_the_same_versions_change_nothing(project: Project, indexes: Indexes) -> None:
    one = newer_wheels(project, specs_of(project)).images[RUNTIME]
    assert (one.new, one.changes, one.odd) == (None, [], [])
    assert one.withdrawn == ["numpy 2.4.6 is yanked: breaks", "torch 2.13.0+cpu is yanked: burns"]


def test_a_version_is_asked_for_once_for_all_images(project: Project, indexes: Indexes) -> None:
    indexes.silent = ["ninja"]
    found = newer_wheels(project, specs_of(project))
    (asked,) = indexes.asked
    names = [one.name for one in asked]
    assert len(names) == len({*names})
    assert {"ninja", "torch"} < {*names}
    assert any("ninja" in line for line in found.warnings)


def test_one_image_that_fails_ends_the_whole_search(project: Project, indexes: Indexes) -> None:
    indexes.newer, indexes.missing = {"numpy": "2.5.0"}, {DEVEL}
    with pytest.raises(LockError, match="nothing is changed") as caught:
        newer_wheels(project, specs_of(project))
    assert DEVEL in caught.value.message
    assert RUNTIME not in caught.value.message


def test_a_projects_lock_decides_its_own_versions(
    project: Project, indexes: Indexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(project, RUNTIME)
    assert isinstance(spec, ImageSpec)
    lock, indexes.newer = read_lock(project.root, spec), {"numpy": "2.5.0"}
    monkeypatch.setattr(_wheel_updates, "read_or_explain", lambda root, spec: lock)
    own = replace(spec, project=ProjectSpec(folder="trainer", lock="uv.lock"))
    one = newer_wheels(project, [own]).images[RUNTIME]
    assert (one.new, one.withdrawn[0]) == (None, "numpy 2.4.6 is yanked: breaks")
