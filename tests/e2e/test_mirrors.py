"""Builds on a host with a proxy and local wheels: they use both, and the images contain no trace of them."""

import http.client
import os
import shutil
import subprocess
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import pytest

from tests.e2e.conftest import CPU, INIT, ROOT, images_of, torchbake
from tests.e2e.containers import output_of
from tests.e2e.serving import index_of, serving
from torchbake.hostconfig.pip_config import read_pip_config

pytestmark = pytest.mark.hostconfig

Project = Callable[..., Path]
MARKER = "marker-of-this-host"


class _Proxy(BaseHTTPRequestHandler):
    """A forward proxy for plain HTTP that records the requested URLs."""

    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        parts = urlsplit(self.path)
        upstream = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=60)
        headers = {key: value for key, value in self.headers.items() if not key.lower().startswith("proxy-")}
        upstream.request("GET", f"{parts.path}?{parts.query}".rstrip("?"), headers=headers)
        answer = upstream.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def proxy(gateway: str) -> Iterator[tuple[str, list[str]]]:
    """A proxy, and what it has been asked for."""
    requests: list[str] = []
    with serving(type("Proxy", (_Proxy,), {"requests": requests}), gateway) as server:
        yield f"http://{MARKER}:secret@{gateway}:{server.server_port}/", requests


def _wheel(folder: Path, name: str, version: str = "1.0", content: str = "answer = 42\n") -> Path:
    """The smallest wheel there can be."""
    folder.mkdir(parents=True)
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.fixture
def index(gateway: str, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """An index with a torch for the CPU that no cache has seen, its torchvision, and what it has been asked for."""
    _wheel(tmp_path / "simple/torchvision", "torchvision", "0.28.0+cpu")
    _wheel(tmp_path / "simple/torch", "torch", "2.13.0+cpu", f"answer = {uuid.uuid4().hex!r}\n")
    with index_of(tmp_path / "simple", gateway) as index:
        yield index


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a host whose pip is as it was installed, with cold caches; but its certificates stay."""
    pip = {name: "" for name in os.environ if name.startswith(("PIP_", "UV_"))}
    cold = {"PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(tmp_path / "cold")}
    return pip | cold | {"SSL_CERT_FILE": read_pip_config().cert or ""}


def _everything_in(ref: str, folder: Path) -> Iterator[bytes]:
    """All bytes of an image: manifests, configuration with history, and every file of every layer."""
    archive = folder / "image.tar"
    with archive.open("wb") as file:
        subprocess.run(["docker", "save", ref], stdout=file, check=True)
    with tarfile.open(archive) as image:
        for member in image.getmembers():
            blob = image.extractfile(member)
            if blob is None:
                continue
            head = blob.read(4)
            if head == b"\x28\xb5\x2f\xfd":
                data = subprocess.run(["zstd", "-dc"], input=head + blob.read(), capture_output=True, check=True).stdout
            else:
                data = head + blob.read()
            yield data


def test_apt_uses_the_hosts_proxy_and_the_image_has_no_trace(
    project: Project, proxy: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, requests = proxy
    path = project(
        "rows:\n  - {torch: 2.13.0, accelerator: cpu, base: debian12}\n"
        "init:\n  volume-permissions: {version: 1.0.0, base: debian12}\n",
        repository="torchbake-test/proxied/pytorch",
    )
    process = torchbake(
        "build",
        INIT,
        "--no-cache",
        "--matrix",
        str(path),
        "--format",
        "json",
        env={"TORCHBAKE_APT_PROXY": url},
    )
    image = images_of(process)[INIT]
    assert image["status"] == "built", process.stderr
    assert any("musl-tools" in request for request in requests)
    assert not any(MARKER.encode() in data for data in _everything_in(image["ref"], tmp_path))
    assert not any(MARKER in file.read_text() for file in (path.parent / ".torchbake/runs").glob("*/*"))


def _cpu_project(project: Project, url: str, package: str = "") -> Path:
    """A project of torch from this index, and of one more package."""
    packages = f", packages: {{pip: [{package}]}}" if package else ""
    path = project(
        f"rows:\n  - {{torch: 2.13.0, accelerator: cpu, base: debian12, indexes: {{cpu: '{url}'}}{packages}}}\n",
        repository="torchbake-test/index/pytorch",
    )
    (path.parent / "images").mkdir()
    shutil.copy(ROOT / "images/builder.lock", path.parent / "images/builder.lock")
    return path


@pytest.mark.long  # the wheels of tests/e2e/test_layers.py are in a folder, and the index below leaves no trace
def test_wheels_of_a_folder_are_installed_without_a_trace(
    project: Project, engine: docker.DockerClient, index: tuple[str, list[str]], tmp_path: Path
) -> None:
    folder = tmp_path / MARKER
    _wheel(folder, "tbmarker")
    path = _cpu_project(project, index[0], "tbmarker")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nfind-links = {folder}\n")
    environment = {"PIP_CONFIG_FILE": str(config), "PIP_FIND_LINKS": str(folder)}
    process = torchbake("build", CPU, "--matrix", str(path), "--format", "json", env=environment)
    image = images_of(process)[CPU]
    assert image["status"] == "built", process.stderr
    output = output_of(engine, image["ref"], ["python", "-c", "import tbmarker; print(tbmarker.answer)"])
    assert output.strip() == "42"
    assert not any(MARKER.encode() in data for data in _everything_in(image["ref"], tmp_path))
    assert MARKER not in (path.parent / "images" / CPU / "requirements.lock").read_text()


def test_without_pip_settings_a_cpu_row_uses_the_matrixs_index(
    project: Project, engine: docker.DockerClient, index: tuple[str, list[str]], bare: dict[str, str]
) -> None:
    url, requests = index
    path = _cpu_project(project, url)
    image = images_of(process := torchbake("build", CPU, "--matrix", str(path), "--format", "json", env=bare))[CPU]
    assert image["status"] == "built", process.stderr
    where = output_of(engine, image["ref"], ["python", "-c", "import torch; print(torch.__file__)"])
    assert where.strip() == "/pytorch/torch.py"
    assert sum(name.endswith(".whl") for name in requests) > 1  # while locking, and in the build
    lock = (path.parent / "images" / CPU / "requirements.lock").read_text()
    (inputs,) = (line for line in lock.splitlines() if url in line)  # the matrix's own index, and no wheel's address
    assert inputs.endswith(f"; indexes {url}")
    # pip in the image finds the index by itself; it has to be told that an index without TLS is trusted.
    own = {"PIP_INDEX_URL": f"{url}/none", "PIP_TRUSTED_HOST": str(urlsplit(url).hostname)}
    script = "pip install --no-cache-dir torchvision >&2 && python -c 'import torchvision; print(torchvision.answer)'"
    assert output_of(engine, image["ref"], ["sh", "-c", script], environment=own).strip() == "42"


def test_an_unreachable_index_is_named_if_no_other_has_the_wheel(
    project: Project, index: tuple[str, list[str]], bare: dict[str, str]
) -> None:
    url, _ = index
    path = _cpu_project(project, "http://127.0.0.1:9/cpu")
    words = ("build", CPU, "--matrix", str(path), "--format", "json")
    failed = images_of(process := torchbake(*words, env=bare | {"UV_HTTP_RETRIES": "0"}))[CPU]
    assert (process.returncode, failed["exit_code"]) == (5, 5)
    assert "http://127.0.0.1:9/cpu" in failed["reason"]
    assert "TORCHBAKE_INDEX_CPU" in process.stdout + process.stderr
    elsewhere = torchbake("lock", CPU, "--matrix", str(path), env=bare | {"PIP_EXTRA_INDEX_URL": url})
    assert elsewhere.returncode == 0, elsewhere.stderr


def test_the_hosts_index_replaces_the_matrixs_without_password(
    project: Project, index: tuple[str, list[str]], bare: dict[str, str], tmp_path: Path
) -> None:
    url, requests = index
    path = _cpu_project(project, "http://127.0.0.1:9/cpu")
    own = url.replace("http://", f"http://{MARKER}:secret@")
    process = torchbake(
        "build", CPU, "--matrix", str(path), "--format", "json", env=bare | {"TORCHBAKE_INDEX_CPU": own}
    )
    image = images_of(process)[CPU]
    assert image["status"] == "built", process.stderr
    assert requests
    paths = [file for file in path.parent.rglob("*") if file.is_file() and "bases" not in file.parts]
    assert not [file for file in paths if MARKER.encode() in file.read_bytes()]
    assert not any(MARKER.encode() in data for data in _everything_in(image["ref"], tmp_path))
