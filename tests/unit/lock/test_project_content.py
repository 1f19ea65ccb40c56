"""A project's own files in an image: packages with their names, or files in the working folder."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.images import test_python as checks
from tests.images.subject import Row, Subject
from tests.unit.conftest import cpu_pins, image, lock_for
from torchbake.core.files import write_text
from torchbake.lock.lockfile import Lock
from torchbake.lock.project_content import added_content, copied_files, package_names, project_sources
from torchbake.matrix.spec import ImageSpec, OwnFile, ProjectSpec, User

NAMES = {
    ".": '[project]\nname = "Acme_Trainer"\n',
    "packages/old": '[tool.poetry]\nname = "acme.old"\n',
    "packages/legacy": '[build-system]\nrequires = ["setuptools"]\n',  # its name is in setup.py
}


def spec_of(*files: str, folder: str = "trainer") -> ImageSpec:
    return image("2.13.0", "cpu", project=ProjectSpec(folder=folder, lock="uv.lock", files=files))


def lock_of(spec: ImageSpec, *packages: str) -> Lock:
    return replace(lock_for(spec, cpu_pins()), packages=packages)


def test_paths_are_below_the_matrix_and_below_the_project() -> None:
    files = ("pyproject.toml", "src/", "./a/b/")
    for folder, prefix in ((".", ""), ("trainer", "trainer/")):
        assert project_sources(ProjectSpec(folder=folder, lock="uv.lock", files=files)) == {
            name: f"{prefix}{name}" for name in ("pyproject.toml", "src", "a/b")
        }


def test_only_a_project_without_packages_is_copied() -> None:
    spec = spec_of("train.py", "lib/")
    expected = (
        OwnFile(source="trainer/train.py", target="/app/train.py"),
        OwnFile(source="trainer/lib", target="/app/lib"),
    )
    assert copied_files(spec, lock_of(spec)) == added_content(spec, lock_of(spec)).files == expected
    assert {file.uid(User(uid=2000)) for file in expected} == {2000}
    assert copied_files(spec, lock_of(spec, ".")) == ()
    assert copied_files(image(), lock_of(spec)) == ()


def test_packages_have_the_names_of_their_pyproject_toml(tmp_path: Path) -> None:
    for folder, text in NAMES.items():
        write_text(tmp_path / "trainer" / folder / "pyproject.toml", text)
    spec = spec_of("pyproject.toml")
    assert package_names(tmp_path, spec, lock_of(spec, *NAMES)) == ["acme-trainer", "acme-old", ""]
    assert package_names(tmp_path, image(), lock_of(spec, ".")) == []


def test_an_image_without_its_project_fails_a_check(tmp_path: Path) -> None:
    for folder, text in NAMES.items():
        write_text(tmp_path / "trainer" / folder / "pyproject.toml", text)
    spec = spec_of("pyproject.toml")
    lock = lock_of(spec, *NAMES)
    row = cast(Row, SimpleNamespace(spec=spec, lock=lock, project=SimpleNamespace(root=tmp_path)))
    subject = cast(Subject, SimpleNamespace(origin=""))
    locked = {pin.name: pin.version for pin in lock.pins.values()}
    own = {"acme_trainer": "1.0", "acme-old": "1.0", "legacy": "1.0"}
    checks.test_locked(row, subject, packages_of({**locked, **own}))
    for wrong, words in (
        ({**locked, "acme-old": "1.0", "legacy": "1.0"}, "acme-trainer of the project is missing"),
        ({**locked, "acme_trainer": "1.0", "acme-old": "1.0"}, "a package of the project is missing"),
        ({**locked, **own, "left": "1.0"}, "left 1.0 is not in the lock"),
    ):
        with pytest.raises(AssertionError, match=words):
            checks.test_locked(row, subject, packages_of(wrong))


def packages_of(versions: dict[str, str]) -> dict[str, Any]:
    packages = [{"name": name, "version": version} for name, version in versions.items()]
    return {"packages": packages, "entries": [*versions]}
