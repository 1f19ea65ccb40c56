"""`base`: a lock of Debian packages decides the source of a base; `--push` writes the lock of the bases."""

import json
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.builds import RUNTIME, small_project, spec_of
from tests.unit.debian.packages import package
from tests.unit.registries import MemoryRegistry, Store
from torchbake.build.base_image import BaseImage
from torchbake.cli import main
from torchbake.commands import base as base_command
from torchbake.debian.lockfile import DebianLock, debian_lock_path, find_debian_lock, format_debian_lock
from torchbake.errors import LockError, UsageError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.base_lock import base_lock_path, read_base_lock
from torchbake.matrix.project import Project, load_project
from torchbake.oci.reference import Repository
from torchbake.store.layout import Layout
from torchbake.store.rootfs_image import write_rootfs_image

DIGEST = f"sha256:{'1' * 64}"


@pytest.mark.parametrize(
    ("locked", "source", "results"),
    [
        ("registry", "auto", True),
        ("registry", "registry", True),
        ("registry", "bootstrap", False),
        ("bootstrap", "bootstrap", True),
        ("bootstrap", "registry", False),
        ("", "registry", True),
    ],
)
def test_a_base_has_the_source_of_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str, source: str, results: bool
) -> None:  # fmt: skip
    project, calls = small_project(tmp_path), list[Any]()
    monkeypatch.setattr(base_command, "make_base", lambda spec, *_, lock, **__: calls.append((spec, lock)))
    monkeypatch.setattr(base_command, "read_apt_config", AptConfig)
    spec = spec_of(project, RUNTIME).base
    if locked:
        packages = (package("libc6"),) if locked == "bootstrap" else ()
        lock = DebianLock(suite=spec.suite, digest=DIGEST, base=packages, installs={})
        debian_lock_path(project.root, spec).write_text(format_debian_lock(spec, lock))
    code = main(["base", "cpu", "--source", source, "--matrix", str(project.root / "matrix.yaml")])
    assert (code == 0, bool(calls)) == (results, results)
    assert results or code == UsageError.exit_code


PLACE = "registry.example/acme"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a bootstrapped base, which nothing makes again."""
    project = small_project(tmp_path)
    base, folder = spec_of(project, RUNTIME).base, project.state / "bases"
    folder.mkdir(parents=True)
    with tarfile.open(tmp_path / "rootfs.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("etc"))
    layout = Layout(folder=folder / base.name)
    digest = write_rootfs_image(tmp_path / "rootfs.tar", layout, created="2025-01-01T00:00:00Z", created_by="test")
    record = BaseImage(name=base.name, image=base.image, source="bootstrap", digest=digest, created="now")
    (folder / f"{base.name}.json").write_text(json.dumps(asdict(record)))
    monkeypatch.setattr(base_command, "make_base", lambda *_, **__: pytest.fail("it is there"))
    return project


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """The registry of all pushes."""
    store = Store()

    def registry(_: object, repository: Repository) -> MemoryRegistry:
        assert str(repository) == f"{PLACE}/debian12"
        return MemoryRegistry(store)

    monkeypatch.setattr(base_command, "Registry", registry)
    return store


def push(project: Project, *words: str) -> int:
    return main(["base", RUNTIME, "--push", PLACE, *words, "--matrix", str(project.root / "matrix.yaml")])


def test_a_pushed_base_is_that_of_all_builds(project: Project, store: Store) -> None:
    assert push(project, "--dry-run") == 0
    assert not store.tags
    assert not base_lock_path(project.root).exists()
    for _ in range(2):  # the second time nothing changes
        assert push(project) == 0
        ((tag, digest),) = store.tags.items()
        spec = spec_of(load_project(project.root / "matrix.yaml"), RUNTIME).base
        assert spec.image == f"{PLACE}/debian12:{tag}@{digest}"
    assert read_base_lock(project.root)["debian12"].matrix_image == spec_of(project, RUNTIME).base.image


def test_a_push_corrects_the_digest_in_the_lock_of_packages(project: Project, store: Store) -> None:
    """Another version of mmdebstrap makes other bytes of the same packages."""
    spec = spec_of(project, RUNTIME).base
    lock = DebianLock(suite=spec.suite, digest=DIGEST, base=(package("libc6"),), installs={})
    debian_lock_path(project.root, spec).write_text(format_debian_lock(spec, lock))
    record = project.state / "bases/debian12.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"locked": lock.base_digest}))
    assert push(project) == 0
    (digest,) = store.tags.values()
    pinned = spec_of(load_project(project.root / "matrix.yaml"), RUNTIME).base
    assert find_debian_lock(project.root, pinned) == replace(lock, digest=digest)


def test_a_damaged_lock_of_bases_ends_a_push_before_it(project: Project, store: Store) -> None:
    base_lock_path(project.root).write_text("[debian12\n")
    assert push(project) == LockError.exit_code
    assert not store.tags
    assert base_lock_path(project.root).read_text() == "[debian12\n"


def test_a_lock_of_packages_is_of_the_base_that_is_used(project: Project) -> None:
    spec = spec_of(project, RUNTIME).base
    lock = DebianLock(suite=spec.suite, digest=DIGEST, installs={})
    debian_lock_path(project.root, spec).write_text(format_debian_lock(spec, lock))
    assert find_debian_lock(project.root, replace(spec, image=f"debian@{DIGEST}")) == lock
    with pytest.raises(LockError, match="has packages for the base") as caught:
        find_debian_lock(project.root, replace(spec, image=f"debian@sha256:{'2' * 64}"))
    assert "all --debian" in (caught.value.hint or "")


def test_an_option_of_a_push_alone_is_refused(project: Project) -> None:
    words = ["base", RUNTIME, "--plain-http", "--matrix", str(project.root / "matrix.yaml")]
    assert main(words) == UsageError.exit_code
