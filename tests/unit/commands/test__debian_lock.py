"""`lock --debian`: which base is resolved, and what happens to a lock that cannot be used."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.builds import BASE, RUNTIME, small_project, spec_of
from tests.unit.debian.packages import address, package
from torchbake.build.base_image import BaseImage
from torchbake.commands import _debian_lock
from torchbake.commands._debian_lock import DebianResolver, lock_debian
from torchbake.debian.lockfile import debian_lock_path, find_debian_lock
from torchbake.debian.solve import SCRIPT
from torchbake.errors import EngineError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.project import Project
from torchbake.matrix.spec import AMD64, ARM64

TRIXIE = f'suite = "trixie"\ndigest = "{BASE.digest}"\nbase = []\nupgrade = []\n[install]\n'


class Engine:
    """In place of an engine and a mirror: the base that is recorded, and the base that is new."""

    def __init__(self) -> None:
        self.recorded: BaseImage | None = BASE
        self.new_base = replace(BASE, digest=f"sha256:{'e' * 64}")
        self.versions = "1.0-1"

    def find_base(self, *_: Any, **__: Any) -> BaseImage | None:
        return self.recorded

    def make_base(self, *_: Any, **__: Any) -> BaseImage:
        return self.new_base

    def output(self, *_: Any, words: str, script: str, **__: Any) -> str:
        assert script == SCRIPT
        source, *requests = words.splitlines()
        base = [address(package("libc6"))] if source else []
        steps = [line for request in requests for line in (f"[{request}]", address(package("tini", self.versions)))]
        return "\n".join(["[base]", *base, "[upgrade]", *steps])


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    for name, function in {
        "find_base": engine.find_base, "make_base": engine.make_base, "output_on_base": engine.output,
    }.items():  # fmt: skip
        monkeypatch.setattr(_debian_lock, name, function)
    return engine


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = small_project(tmp_path)

    def check_scripts(platform: str) -> None:
        if platform != AMD64:
            raise EngineError(platform)

    backend: Any = SimpleNamespace(
        start=lambda **_: None,
        base_context=lambda base: f"docker-image://{base.image}@{base.digest}",
        check_scripts=check_scripts,
    )
    resolver = DebianResolver(project=project, backend=backend, apt=AptConfig())
    monkeypatch.setattr(_debian_lock, "debian_resolver", lambda _: resolver)
    return project


def lock(project: Project, *, upgrade: bool = False) -> str:
    """Lock the base of an image, and return the digest in the lock."""
    spec = spec_of(project, RUNTIME)
    lock_debian(project, [spec], upgrade=upgrade)
    result = find_debian_lock(project.root, spec.base)
    assert result
    return result.digest


def test_a_bootstrapped_base_of_another_day_is_made_again(engine: Engine, project: Project) -> None:
    """A mirror may have dropped its packages. The next lock is on the base that is recorded."""
    engine.new_base = replace(engine.new_base, source="bootstrap")
    engine.recorded = replace(BASE, source="bootstrap")
    assert lock(project) == engine.new_base.digest
    engine.recorded = engine.new_base
    engine.new_base = BASE
    assert lock(project) == engine.recorded.digest


def test_a_base_of_a_registry_stays_without_upgrade(engine: Engine, project: Project) -> None:
    assert lock(project) == BASE.digest
    assert lock(project, upgrade=True) == engine.new_base.digest


def test_a_base_of_a_platform_that_does_not_run_is_an_error(engine: Engine, project: Project) -> None:
    spec = spec_of(project, RUNTIME)
    arm = replace(spec, base=replace(spec.base, platform=ARM64), platform=ARM64)
    with pytest.raises(EngineError):
        lock_debian(project, [arm], upgrade=False)
    assert not debian_lock_path(project.root, arm.base).exists()


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n", TRIXIE])
def test_a_lock_that_cannot_be_read_is_made_again(engine: Engine, project: Project, text: str) -> None:
    path = debian_lock_path(project.root, spec_of(project, RUNTIME).base)
    path.write_text(text)
    assert lock(project) == BASE.digest


def test_a_newer_base_alone_is_a_change(
    engine: Engine, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    lock(project)
    lock(project)
    assert "debian12: unchanged" in capsys.readouterr().err
    lock(project, upgrade=True)
    assert "unchanged" not in capsys.readouterr().err
