"""Questions to uv itself, about packages in a folder."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.wheels import write_wheel
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.uv import why_not_installable

pytestmark = pytest.mark.usefixtures("own_processes")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with wheels of `app`, whose version 2 needs a `parser` that has no wheel."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "packages"
    for version, needs in (("1.0", ()), ("2.0", ("parser==4.9",)), ("3.0", ("nowhere",))):
        write_wheel(folder, "app", version, {}, needs=needs)
    write_wheel(folder, "parser", "4.13", {})
    _write_source(folder, "parser", "4.9")
    return folder


def _write_source(folder: Path, name: str, version: str) -> None:
    """Write a source distribution whose setup.py fails."""
    information = f"Metadata-Version: 1.0\nName: {name}\nVersion: {version}\n"
    files = {"PKG-INFO": information, "setup.py": "raise SystemExit(9)\n"}
    with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


def test_a_dependency_without_a_wheel_is_named(packages: Path) -> None:
    config = PipConfig(no_index=True, find_links=(str(packages),))
    assert why_not_installable("app==1.0", "3.11", config) == ""
    assert "parser" in why_not_installable("app==2.0", "3.11", config).partition("has no wheel")[0]
    assert "nowhere was not found" in why_not_installable("app==3.0", "3.11", config)
