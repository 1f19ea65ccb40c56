"""The lock of Debian packages: it is read as it was written, and a damaged lock is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.builds import RUNTIME, small_project, spec_of
from tests.unit.debian.packages import package
from torchbake.debian.lockfile import (
    DebianLock,
    changes_of,
    debian_lock_path,
    find_debian_lock,
    format_debian_lock,
    parse_debian_lock,
)
from torchbake.debian.steps import AptStep, apt_steps
from torchbake.errors import LockError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec, Spec

STEP = AptStep(name="system", packages=("python3", "tini"))
ABOVE = AptStep(name="added", packages=("git",), below=STEP.packages)
DIGEST = f"sha256:{'1' * 64}"
OLD = DebianLock(
    suite="bookworm",
    base=(package("libc6"), package("libssl3", "3.0.17-1")),
    upgrade=(package("libc6", "1.0-2", archive="security"),),
    installs={STEP.key: (package("python3", "3.11.2-1+b1"), package("tini")), ABOVE.key: (package("git", "1:2.39"),)},
)


def test_a_lock_is_read_as_it_was_written(project: Project) -> None:
    base = spec_of(project, RUNTIME).base
    text = format_debian_lock(base, OLD)
    assert parse_debian_lock(text, "x.lock") == OLD
    assert format_debian_lock(base, parse_debian_lock(text, "x.lock")) == text
    assert OLD.python(base) == "3.11"
    epoch = replace(OLD, installs={STEP.key: (package("python3", "1:3.13.5-1"),)})
    assert (epoch.python(base), replace(OLD, installs={}).python(base)) == ("3.13", "")


def test_the_first_step_installs_the_upgrades() -> None:
    packages = OLD.of([STEP, ABOVE])
    assert packages == {
        "system": (package("libc6", "1.0-2", archive="security"), package("python3", "3.11.2-1+b1"), package("tini")),
        "added": (package("git", "1:2.39"),),
    }


def test_a_version_of_the_matrix_wins_over_an_upgrade() -> None:
    step = AptStep(name="system", packages=("libssl3=3.0.18-1", "tini"))
    own = (package("libssl3", "3.0.18-1"), package("tini"))
    lock = replace(OLD, upgrade=(package("libssl3", "3.0.19-1"),), installs={step.key: own})
    assert lock.of([step]) == {"system": own}


def test_a_step_that_no_lock_has_is_an_error() -> None:
    steps = [AptStep(name="packages", packages=("libgl1",), below=STEP.packages)]
    for of in (OLD.of, OLD.part):
        with pytest.raises(LockError, match="libgl1"):
            of(steps)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sha256", "sha257"),
        ('suite = "bookworm"', ""),
        (" main pool/main/", " main ../../etc/"),
        (" main pool/main/t", " main pool/../../t"),
        (" main ", " other "),
        ("tini 1.0-1 amd64", "tini amd64"),
        ("[install]", "[install"),
        ('digest = ""', 'digest = "sha256:12"'),
        (" 1000 ", " -1 "),
    ],
)
def test_a_damaged_lock_names_its_file(project: Project, old: str, new: str) -> None:
    text = format_debian_lock(spec_of(project, RUNTIME).base, OLD)
    damaged = text.replace(old, new) if old in text else text.replace(package("tini").sha256, "0" * 63)
    with pytest.raises(LockError, match=r"^images/debian12\.lock: "):
        parse_debian_lock(damaged, "images/debian12.lock")


def test_a_base_has_packages_or_a_digest(project: Project) -> None:
    text = format_debian_lock(spec_of(project, RUNTIME).base, replace(OLD, base=()))
    with pytest.raises(LockError, match="is no digest"):
        parse_debian_lock(text, "images/debian12.lock")


def test_a_base_is_compared_by_its_packages_or_its_digest() -> None:
    assert replace(OLD, base=(), digest=DIGEST).base_digest == DIGEST
    newer = replace(OLD, base=(package("libc6"), package("libssl3", "3.0.18-1")))
    assert OLD.base_digest == replace(OLD, upgrade=()).base_digest != newer.base_digest


def test_a_lock_of_another_suite_is_refused(project: Project, tmp_path: Path) -> None:
    base = spec_of(project, RUNTIME).base
    write(debian_lock_path(tmp_path, base), replace(OLD, suite="trixie"), base.name)
    with pytest.raises(LockError, match=r"debian12\.lock: has packages of trixie, and the matrix has bookworm"):
        find_debian_lock(tmp_path, base)


def test_a_change_names_versions_and_the_archive() -> None:
    fixed = package("libssl3", "3.0.18-1", archive="security")
    new = DebianLock(suite="bookworm", base=OLD.base, upgrade=(fixed,), installs={STEP.key: OLD.installs[STEP.key]})
    assert changes_of(OLD, new) == [
        "git 1:2.39 -> (gone)",
        "libc6 1.0-2 -> 1.0-1",
        "libssl3 3.0.17-1 -> 3.0.18-1 (security)",
    ]
    assert changes_of(OLD, OLD) == []


def test_an_image_depends_on_its_own_packages_alone(tmp_path: Path) -> None:
    project = small_project(tmp_path)
    spec = spec_of(project, RUNTIME)
    assert find_debian_lock(project.root, spec.base) is None
    path = debian_lock_path(project.root, spec.base)
    installs = {step.key: (package(step.packages[0]),) for step in apt_steps(spec).values()}
    write(path, DebianLock(suite="bookworm", digest=DIGEST, installs=installs), spec.base.name)
    lines = lines_of(project, spec)
    assert len(lines) == len(installs)
    write(
        path,
        DebianLock(suite="bookworm", digest=DIGEST, installs={**installs, "other": (package("other"),)}),
        spec.base.name,
    )
    assert lines_of(project, spec) == lines
    first = {**installs, next(iter(installs)): (package("ca-certificates", "2.0-1"),)}
    write(path, DebianLock(suite="bookworm", digest=DIGEST, installs=first), spec.base.name)
    assert lines_of(project, spec) != lines
    assert find_debian_lock(project.root, spec.base)


def lines_of(project: Project, spec: Spec) -> list[str]:
    lock = find_debian_lock(project.root, spec.base)
    assert lock
    return lock.lines(spec)


def write(path: Path, lock: DebianLock, name: str) -> None:
    base = BaseSpec(name=name, image="debian:bookworm-slim", suite="bookworm", python="3.11")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_debian_lock(base, lock))
