"""The wheels in `wheels/` that a lock needs are there and unchanged, or the lock counts as out of date."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.builds import BASE, RUNTIME, preparation_of, small_project, spec_of
from tests.unit.conftest import cpu_pins, lock_for, pin
from tests.unit.test_cli import err
from tests.wheels import write_wheel
from torchbake.build.own_wheels_check import check_own_wheels
from torchbake.commands import _narrow
from torchbake.core.files import write_text
from torchbake.errors import LockError
from torchbake.lock.image_lock import format_checked, lock_path, read_lock
from torchbake.lock.lockfile import Lock
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec

WHEEL = "tools-1.0-py3-none-any.whl"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The small project with a package whose wheel is in `wheels/`, on a host without indexes."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    project = small_project(tmp_path / "project")
    write_text(lock_path(project.root, image_of(project)), format_checked(image_of(project), lock_of(project)))
    return project


def image_of(project: Project) -> ImageSpec:
    spec = spec_of(project, RUNTIME)
    assert isinstance(spec, ImageSpec)
    return spec


def lock_of(project: Project) -> Lock:
    digest = write_wheel(project.root / "wheels", "tools", "1.0", {"tools.py": b""}, tag="py3-none-any")
    own = replace(pin("tools", "1.0", via=["numpy"]), hashes=(digest,))
    return replace(lock_for(image_of(project), [*cpu_pins(), own]), wheels=(WHEEL,))


def refusal(project: Project) -> str:
    with pytest.raises(LockError) as caught:
        check_own_wheels(project.root, image_of(project), lock_of_disk(project))
    assert caught.value.hint
    return caught.value.message


def lock_of_disk(project: Project) -> Lock:
    return read_lock(project.root, image_of(project))


def test_a_wheel_that_is_missing_or_changed_is_named(project: Project) -> None:
    path = project.root / "wheels" / WHEEL
    check_own_wheels(project.root, image_of(project), lock_of_disk(project))
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert refusal(project).startswith(f"wheels/{WHEEL}: is damaged or replaced")
    path.unlink()
    assert refusal(project).startswith(f"wheels/{WHEEL}: {RUNTIME} needs this wheel")
    path.mkdir()
    assert refusal(project).startswith(f"wheels/{WHEEL}: Is a directory")


def test_a_wheel_in_another_folder_of_the_host_is_enough(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.root / "wheels").rename(tmp_path / "kept")
    refusal(project)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "kept"))
    check_own_wheels(project.root, image_of(project), lock_of_disk(project))


def test_lock_check_fails_for_a_missing_wheel(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    (project.root / "wheels" / WHEEL).unlink()
    text = err(capsys, "lock", RUNTIME, "--check", "--matrix", str(project.root / "matrix.yaml"), code=5)
    assert f"wheels/{WHEEL}" in text
    assert f"nox -s lock -- {RUNTIME}" in text


def test_an_image_whose_wheel_is_missing_is_due(project: Project) -> None:
    question = _narrow.DueQuestion(project=project, destinations=(), plain=False, bases="ask")
    assert question._inputs(image_of(project), BASE.digest)
    (project.root / "wheels" / WHEEL).unlink()
    with pytest.raises(LockError, match=f"wheels/{WHEEL}"):
        question._inputs(image_of(project), BASE.digest)
    with pytest.raises(LockError, match=f"wheels/{WHEEL}"):
        preparation_of(project).job(image_of(project), BASE)
