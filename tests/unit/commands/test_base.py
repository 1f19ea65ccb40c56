"""`base`: a lock of Debian packages decides the source of a base."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.builds import RUNTIME, small_project, spec_of
from tests.unit.debian.packages import package
from torchbake.cli import main
from torchbake.commands import base
from torchbake.debian.lockfile import DebianLock, debian_lock_path, format_debian_lock
from torchbake.errors import UsageError
from torchbake.hostconfig.apt_config import AptConfig

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
    monkeypatch.setattr(base, "make_base", lambda spec, *_, lock, **__: calls.append((spec, lock)))
    monkeypatch.setattr(base, "read_apt_config", AptConfig)
    spec = spec_of(project, RUNTIME).base
    if locked:
        packages = (package("libc6"),) if locked == "bootstrap" else ()
        lock = DebianLock(suite=spec.suite, digest=DIGEST, base=packages, installs={})
        debian_lock_path(project.root, spec).write_text(format_debian_lock(spec, lock))
    code = main(["base", "cpu", "--source", source, "--matrix", str(project.root / "matrix.yaml")])
    assert (code == 0, bool(calls)) == (results, results)
    assert results or code == UsageError.exit_code
