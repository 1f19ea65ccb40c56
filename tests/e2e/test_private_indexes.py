"""A project's packages on an index with a login, from `torchbake lock` to the files of a build."""

import base64
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from io import BytesIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import uv

from benchmarks.trace import events_of
from tests.e2e.conftest import Completed, torchbake
from tests.e2e.serving import serving
from tests.e2e.test_own_wheels import PYPROJECT, source_files
from tests.wheels import write_wheel
from torchbake.build.wheel_fetch import fetch_wheel, find_archive
from torchbake.core.digest import file_digest
from torchbake.core.files import in_memory
from torchbake.errors import HostConfigError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import files_of, secret_texts
from torchbake.hostconfig.index_logins import check_logins
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.image_lock import read_lock
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import ImageSpec
from torchbake.projects.package_sources import read_package_sources

pytestmark = pytest.mark.projects

PASSWORD = "s3cr3t/@:x"
LOGIN = {"UV_INDEX_ACME_USERNAME": "me", "UV_INDEX_ACME_PASSWORD": PASSWORD}
MATRIX = """\
repository: torchbake-test/private
source: https://example.com/acme
bases:
  debian12: {image: "debian:bookworm-slim", suite: bookworm, python: "3.11"}
defaults: {compiler: false}
flavors: {runtime: {}}
rows:
  - torch: 2.13.0
    accelerator: cpu
    base: debian12
    flavor: runtime
    project: {folder: trainer, files: [pyproject.toml]}
tags:
  defaults: {accelerator: cpu, base: debian12, flavor: runtime}
  rolling: [latest]
"""
TRAINER = """\
[project]
name = "trainer"
version = "1.0"
requires-python = "==3.11.*"
dependencies = ["torch==2.13.0+cpu", "private-tool", "tools"]
[tool.uv]
package = false
environments = ["sys_platform == 'linux'"]
[[tool.uv.index]]
name = "acme"
url = "URL/simple"
default = true
"""


class _Guarded(SimpleHTTPRequestHandler):
    """Files for requests with the login alone."""

    def do_GET(self) -> None:
        expected = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") == expected:
            super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="acme"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - the name of http.server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A matrix whose project has all its packages on an index with a login; the host's settings have no index."""
    for name, value in {"PIP_CONFIG_FILE": os.devnull, "NETRC": os.devnull, "UV_NO_CACHE": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", *LOGIN):
        monkeypatch.delenv(name, raising=False)
    folder, root = tmp_path / "index/simple", tmp_path / "project"
    write_wheel(folder / "torch", "torch", "2.13.0+cpu", {"torch/__init__.py": b""})
    write_wheel(folder / "private-tool", "private-tool", "1.2", {"private_tool.py": b"X = 1\n"}, tag="py3-none-any")
    _write_sdist(folder / "tools/tools-1.0.tar.gz")
    for page in (folder / "torch", folder / "private-tool", folder / "tools"):
        links = (
            f'<a href="{each.name}#{file_digest(each).replace(":", "=")}">{each.name}</a>' for each in page.iterdir()
        )
        (page / "index.html").write_text("\n".join(list(links)))
    (root / "trainer").mkdir(parents=True)
    (root / "matrix.yaml").write_text(MATRIX)
    builder = root / "images/builder.lock"
    builder.parent.mkdir()
    builder.write_text((Path(__file__).parents[2] / "images/builder.lock").read_text())
    with serving(partial(_Guarded, directory=str(tmp_path / "index"))) as server:
        text = TRAINER.replace("URL", f"http://127.0.0.1:{server.server_port}")
        (root / "trainer/pyproject.toml").write_text(text)
        words = [uv.find_uv_bin(), "lock", "--quiet", "--python", sys.executable]
        subprocess.run(words, cwd=root / "trainer", env={**os.environ, **LOGIN}, check=True)
        yield root / "matrix.yaml"


def _write_sdist(path: Path) -> None:
    """Write the source of the package ``tools``, whose metadata an index of this kind has only in the archive."""
    project = f'{PYPROJECT}[project]\nname = "tools"\nversion = "1.0"\n'
    metadata = "Metadata-Version: 2.2\nName: tools\nVersion: 1.0\n"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {**source_files(), "pyproject.toml": project, "PKG-INFO": metadata}.items():
            member = tarfile.TarInfo(f"tools-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, BytesIO(text.encode()))


def lock(matrix: Path, *words: str, **env: str) -> Completed:
    return torchbake("lock", "all", "--matrix", str(matrix), *words, env=env)


def test_a_lock_and_a_build_reach_the_index_with_the_login(matrix: Path, tmp_path: Path) -> None:
    refused = lock(matrix)
    assert refused.returncode == 5
    assert all(name in refused.stderr for name in LOGIN)
    wrong = lock(matrix, **{**LOGIN, "UV_INDEX_ACME_PASSWORD": "wrong"})
    assert wrong.returncode == 5
    assert "wrong" not in wrong.stderr
    process = lock(matrix, **LOGIN)
    assert process.returncode == 0, process.stderr
    assert lock(matrix, "--check").returncode == 0
    write_wheel(matrix.parent / "wheels", "former", "1.0", {"former.py": b""}, tag="py3-none-any")
    again = lock(matrix)
    assert "former-1.0-py3-none-any.whl" in again.stderr
    assert "unchanged" in again.stdout + again.stderr, "the wheel of the source is in wheels/, so no index is asked"
    for path in matrix.parent.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path
    assert PASSWORD not in process.stdout + process.stderr + refused.stderr + again.stderr

    project = load_project(matrix)
    (spec,) = project.expansion.specs
    assert isinstance(spec, ImageSpec)
    pip = read_package_sources(project, {**os.environ, **LOGIN})
    pins = read_lock(project.root, spec).pins
    assert set(pins) == {"torch", "private-tool", "tools"}
    for name in ("torch", "private-tool"):
        archive = find_archive(pins[name], pip.for_image(spec), "3.11")
        assert archive
        with fetch_wheel(archive, pip.for_image(spec), tmp_path / name, Event()) as source_archive:
            assert source_archive.digest in pins[name].hashes
    assert find_archive(pins["private-tool"], pip, "3.11") is None, "an image without the project"
    _install(spec, pip, tmp_path / "target")
    assert (tmp_path / "target/private_tool.py").exists()


def _install(spec: ImageSpec, pip: PipConfig, target: Path) -> None:
    """Install by uv with the secret of a build."""
    texts = secret_texts(pip, AptConfig(), spec)
    with files_of({"uv-toml": texts["uv-toml"]}, pip) as secrets:
        subprocess.run(
            [uv.find_uv_bin(), "pip", "install", "--quiet", "--config-file", str(secrets["uv-toml"]), "--no-deps",
             "--target", str(target), "--python", sys.executable, "private-tool==1.2"],
            check=True, close_fds=False,
        )  # fmt: skip


def test_an_index_that_refuses_is_named_before_a_build(matrix: Path) -> None:
    project = load_project(matrix)
    for environ, words in (
        ({}, "needs a login"),
        ({**LOGIN, "UV_INDEX_ACME_PASSWORD": "wrong"}, "refuses this host's login"),
    ):
        pip = read_package_sources(project, {**os.environ, **environ})
        with pytest.raises(HostConfigError) as caught:
            check_logins(pip.by_project["trainer"], "tools", pip)
        assert words in caught.value.message
        assert "acme" in caught.value.message
        assert all(name in str(caught.value.hint) for name in LOGIN)
        assert "wrong" not in caught.value.sentence
    pip = read_package_sources(project, {**os.environ, **LOGIN})
    check_logins(pip.by_project["trainer"], "tools", pip)


def test_a_traced_build_can_read_the_hosts_secrets() -> None:
    event = '{"vertexes": [{"digest": "sha256:a", "name": "RUN x"}]}'
    with in_memory(event) as secret:
        assert events_of("cat", str(secret)) == [json.loads(event)]
