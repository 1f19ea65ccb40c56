"""Locks of Debian packages on a real engine: the same image whatever a mirror has, and no package of another hash."""

import http.client
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import pytest

from tests.e2e.conftest import INIT, images_of, small_project, torchbake
from tests.e2e.serving import serving
from torchbake.hostconfig.apt_archives import archive_of
from torchbake.hostconfig.apt_config import read_apt_config

pytestmark = [pytest.mark.debian, pytest.mark.long]  # test_debian_update.py has the command, tests/unit/debian mirrors

ROWS = (
    "rows:\n  - {torch: 2.13.0, accelerator: cpu, base: debian12}\n"
    "init:\n  volume-permissions: {version: 1.0.0, base: debian12}\n"
)
MIRROR = archive_of("debian", read_apt_config())
TOOL = "musl-tools"


@dataclass(kw_only=True)
class Mirror:
    """A mirror that passes requests on to the host's mirror, except for files that it has dropped."""

    address: str = ""
    dropped: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)


@contextmanager
def mirror() -> Iterator[Mirror]:
    value = Mirror()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value.requests.append(self.path)
            archive, _, path = self.path.lstrip("/").partition("/")
            upstream = urlsplit(MIRROR.security if archive == "debian-security" else MIRROR.mirror)
            if path in value.dropped:
                self.send_error(404)
                return
            connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port or 80, timeout=60)
            connection.request("GET", f"{upstream.path.rstrip('/')}/{path}")
            answer = connection.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with serving(Handler) as server:
        value.address = f"http://127.0.0.1:{server.server_port}/debian"
        yield value


@dataclass(frozen=True, kw_only=True)
class Locked:
    """A matrix with one image whose Debian packages are locked, and the layers of that image without a lock."""

    path: Path
    lock: Path
    layers: list[str]

    @property
    def tool(self) -> str:
        """The path of the compiler's package below the mirror."""
        match = re.search(rf'"{TOOL} \S+ \S+ \S+ (\S+) ', self.lock.read_text())
        assert match
        return match[1]

    def build(self, folder: Path, mirror: str) -> Any:
        """Build the image with an empty pool in ``folder``, without a build cache."""
        env = {"TORCHBAKE_APT_MIRROR": mirror, "TORCHBAKE_LAYERS": str(folder)}
        return torchbake("build", INIT, "--no-cache", "--matrix", str(self.path), "--format", "json", env=env)


@pytest.fixture(scope="module")
def locked_once(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient, bases: Path) -> Locked:
    path = small_project(tmp_path_factory.mktemp("locked"), bases, ROWS, repository="torchbake-test/locked/pytorch")
    (path.parent / ".torchbake/bases").unlink()
    shutil.copytree(bases, path.parent / ".torchbake/bases")
    image = images_of(torchbake("build", INIT, "--matrix", str(path), "--format", "json"))[INIT]
    process = torchbake("lock", "all", "--debian", "--matrix", str(path))
    assert process.returncode == 0, process.stderr
    lock = path.parent / "images/debian12.lock"
    return Locked(path=path, lock=lock, layers=layers_of(engine, image["ref"]))


@pytest.fixture
def locked(locked_once: Locked) -> Iterator[Locked]:
    """The matrix and its lock, which the test may change."""
    texts = {path: path.read_text() for path in (locked_once.path, locked_once.lock)}
    yield locked_once
    for path, text in texts.items():
        path.write_text(text)


def layers_of(engine: docker.DockerClient, ref: str) -> list[str]:
    layers: list[str] = engine.images.get(ref).attrs["RootFS"]["Layers"]
    return layers


def test_a_dropped_package_comes_from_the_dated_mirror(
    locked: Locked, engine: docker.DockerClient, tmp_path: Path
) -> None:
    """The base is bootstrapped again of locked packages, with the digest that the mirror's packages gave."""
    record = locked.path.parent / ".torchbake/bases/debian12.json"
    before = json.loads(record.read_text())
    with mirror() as today, mirror() as dated:
        today.dropped = {locked.tool}
        process = locked.build(tmp_path / "first", today.address)
        assert process.returncode != 0
        assert TOOL in process.stdout + process.stderr
        text = locked.path.read_text()
        shutil.rmtree(record.parent)
        locked.path.write_text(text.replace("suite: bookworm", f"suite: bookworm, snapshot: '{dated.address}'"))
        process = locked.build(tmp_path / "second", today.address)
        assert images_of(process)[INIT]["status"] == "built", process.stderr
    assert dated.requests == [f"/debian/{locked.tool}"]
    assert not any("/dists/" in request for request in today.requests)
    assert layers_of(engine, images_of(process)[INIT]["ref"]) == locked.layers
    if before["source"] == "bootstrap":
        after = json.loads(record.read_text())
        assert after["digest"] == before["digest"]
        assert after["locked"]


def test_a_package_with_another_hash_is_not_installed(locked: Locked, tmp_path: Path) -> None:
    text = locked.lock.read_text()
    wrong = re.sub(rf'("{TOOL} .*)[0-9a-f]{{64}}"', rf'\g<1>{"0" * 64}"', text)
    assert wrong != text
    locked.lock.write_text(wrong)
    with mirror() as today:
        process = locked.build(tmp_path / "layers", today.address)
    assert process.returncode != 0
    assert TOOL in process.stdout + process.stderr
    assert "another hash" in process.stdout + process.stderr


def test_a_lock_is_checked_against_the_matrix(locked: Locked) -> None:
    words = ("lock", "all", "--debian", "--check", "--matrix", str(locked.path))
    assert torchbake(*words).returncode == 0
    text = locked.lock.read_text()
    again = torchbake("lock", "all", "--debian", "--matrix", str(locked.path))
    assert locked.lock.read_text() == text, again.stderr
    locked.lock.write_text(re.sub(r'"musl-tools" = \[', '"another-tool" = [', text))
    process = torchbake(*words)
    assert process.returncode != 0
    assert TOOL in process.stdout + process.stderr
