"""Questions to uv itself, about packages in a folder."""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.wheels import write_wheel
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.lock.uv import MissingWheelError, UvRequest, resolve, uv_environment, why_not_installable

pytestmark = pytest.mark.usefixtures("own_processes")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with wheels of `app`, whose version 2 needs a `parser` that has no wheel."""
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


def test_a_package_without_any_wheel_is_named_in_the_next_step(packages: Path) -> None:
    _write_source(packages, "score", "0.1")
    config = PipConfig(no_index=True, find_links=(str(packages),))
    for requirements, name in ((("score", "app<2"), "score"), (("app==2.0",), "parser")):
        with pytest.raises(MissingWheelError) as caught:
            resolve(UvRequest(requirements=requirements, python="3.11"), config)
        hint = str(caught.value.hint)
        assert hint.startswith(f"No wheel of {name} fits Python 3.11")
        assert f"pip wheel --wheel-dir FOLDER {name}`" in hint
    with pytest.raises(LockError) as other:
        resolve(UvRequest(requirements=("nowhere",), python="3.11"), config)
    assert not isinstance(other.value, MissingWheelError)


CHANGES = {
    "UV_RESOLUTION": "lowest",
    "UV_CONSTRAINT": "CONSTRAINT",
    "UV_EXCLUDE": "CONSTRAINT",
    "UV_TORCH_BACKEND": "cu128",
}
STORED = {
    "UV_CACHE_DIR": "/cache", "UV_INDEX": "https://mirror", "UV_INDEX_MIRROR_PASSWORD": "secret",
    "UV_FIND_LINKS": "/wheels", "UV_HTTP_TIMEOUT": "300", "UV_CONCURRENT_DOWNLOADS": "4",
    "HTTPS_PROXY": "http://proxy", "SSL_CERT_FILE": "/ca.pem",
}  # fmt: skip


def test_no_variable_of_the_shell_changes_an_answer(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "constraints.txt").write_text("parser<4.10\n")

    def ask() -> tuple[Pin, ...]:
        config = PipConfig(no_index=True, find_links=(str(packages),))
        return resolve(UvRequest(requirements=("parser", "app<3"), python="3.11"), config)

    plain = ask()
    assert {pin.name: pin.version for pin in plain} == {"app": "1.0", "parser": "4.13"}
    write_wheel(packages, "parser", "4.12", {})
    for name, value in CHANGES.items():
        with monkeypatch.context() as shell:
            shell.setenv(name, value.replace("CONSTRAINT", str(tmp_path / "constraints.txt")))
            assert (name, ask()) == (name, plain)
            ask()
        assert capsys.readouterr().err.count(name) == 1


def test_uv_inherits_its_cache_network_and_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in STORED.items():
        monkeypatch.setenv(name, value)
    assert uv_environment(PipConfig()).items() >= STORED.items()


def test_a_wheel_of_the_platform_is_taken(packages: Path) -> None:
    for version, tag in (("5.0", "cp311-cp311-manylinux_2_28_aarch64"), ("5.1", "cp311-cp311-manylinux2014_x86_64")):
        write_wheel(packages, "parser", version, {}, tag=tag)
    config = PipConfig(no_index=True, find_links=(str(packages),))
    for platform, version in (("linux/amd64", "5.1"), ("linux/arm64", "5.0")):
        (pin,) = resolve(UvRequest(requirements=("parser",), python="3.11", platform=platform), config)
        assert pin.version == version, platform


def _index(folder: Path, wheels: Mapping[str, str]) -> str:
    """Write an index with wheels of `app`, their tags by version, and return its address."""
    for version, tag in wheels.items():
        write_wheel(folder / "app", "app", version, {}, tag=tag)
    links = (f'<a href="{path.name}">{path.name}</a>' for path in sorted((folder / "app").glob("*.whl")))
    (folder / "app/index.html").write_text("<!DOCTYPE html>" + "".join(links))
    return folder.as_uri()


def test_a_kept_version_may_have_its_wheel_in_any_index(packages: Path, tmp_path: Path) -> None:
    """A mirror holds a wheel of the version for one Python alone; the main index has one for each."""
    mirror = _index(tmp_path / "mirror", {"1.5": "cp313-cp313-linux_x86_64"})
    main = _index(tmp_path / "main", {"1.5": "py3-none-any", "1.6": "py3-none-any"})
    config = PipConfig(index_url=main, extra_index_urls=(mirror,))
    request = UvRequest(requirements=("app",), python="3.11", preferred="app==1.5\n")
    assert [pin.version for pin in resolve(request, config)] == ["1.5"]
    request = replace(request, requirements=("app>1.5",))  # the kept version does not fit
    assert [pin.version for pin in resolve(request, config)] == ["1.6"]
