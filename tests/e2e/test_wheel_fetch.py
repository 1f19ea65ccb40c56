"""Wheels from a real index over HTTP, straight into layers: whole ones alone."""

import os
import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.e2e.serving import index_of, serving
from tests.wheels import write_wheel
from torchbake.build.wheel_fetch import WheelArchive, fetch_wheel
from torchbake.build.wheel_packer import WheelPacker
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.store.layers import LayerStore

pytestmark = pytest.mark.build

NAME, VERSION = "nvidia-cublas-cu12", "12.8.4.99"
FILES = {
    "nvidia/cublas/lib/libcublas.so.12": os.urandom(3_000_000),
    "nvidia/cublas/include/cublas.h": b"#pragma once\n",
}


PAGE = '<a href="{name}#sha256={digest}">{name}</a>'


@pytest.fixture(scope="module")
def pin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pin]:
    """A folder with an index of one wheel, and its pin."""
    folder = tmp_path_factory.mktemp("index")
    return folder, Pin(name=NAME, version=VERSION, hashes=(write_wheel(folder / NAME, NAME, VERSION, FILES),))


def packer(url: str, folder: Path) -> WheelPacker:
    store = LayerStore(folder=folder / "store")
    return WheelPacker(store=store, pip=PipConfig(index_url=url), python="3.11", root="/nvidia", trim=True)


@pytest.mark.parametrize("spare", [0, 2**40], ids=["on disk", "in memory"])
def test_a_wheel_comes_whole_and_goes(pin: tuple[Path, Pin], tmp_path: Path, spare: int) -> None:
    (wheel,) = (pin[0] / NAME).glob("*.whl")
    target = tmp_path / "wheel.whl"
    with index_of(pin[0], "127.0.0.1") as (url, _):
        archive = WheelArchive(hashes=pin[1].hashes, url=f"{url}/{NAME}/{wheel.name}")
        with fetch_wheel(archive, PipConfig(), target, threading.Event(), lambda: spare) as actual:
            assert (actual.path, actual.digest) == (target, pin[1].hashes[0])
            copied = subprocess.run(["cat", target], capture_output=True, check=True).stdout
            assert target.is_symlink() == bool(spare)
    assert copied == wheel.read_bytes()
    assert target.exists() != bool(spare)


@pytest.mark.parametrize("hashes", [True, False], ids=["with hashes", "without"])
def test_a_wheel_is_fetched_once_for_all_pythons(pin: tuple[Path, Pin], tmp_path: Path, *, hashes: bool) -> None:
    (wheel,) = (pin[0] / NAME).glob("*.whl")
    page, digest = pin[0] / NAME / "index.html", pin[1].hashes[0].partition(":")[2]
    page.write_text(PAGE.format(name=wheel.name, digest=digest if hashes else ""))
    with index_of(pin[0], "127.0.0.1") as (url, requests):
        layer = packer(url, tmp_path).pack(pin[1])
        assert replace(packer(url, tmp_path), python="3.13").pack(pin[1]) == layer
        assert len([path for path in requests if path.endswith(".whl")]) == 1


class _Cut(BaseHTTPRequestHandler):
    """Has the page of the index, and of the wheel the first half."""

    page, wheel = b"", b""

    def do_GET(self) -> None:
        body = self.wheel if self.path.endswith(".whl") else self.page
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if body is self.wheel else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if body is self.wheel else body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_half_of_a_wheel_is_refused(pin: tuple[Path, Pin], tmp_path: Path) -> None:
    (wheel,) = (pin[0] / NAME).glob("*.whl")
    page = PAGE.format(name=wheel.name, digest=pin[1].hashes[0].partition(":")[2]).encode()
    handler = type("Cut", (_Cut,), {"page": page, "wheel": wheel.read_bytes()})
    with serving(handler) as server, pytest.raises(BuildError, match=rf"^{wheel.name} cannot be fetched: "):
        packer(f"http://127.0.0.1:{server.server_port}", tmp_path).pack(pin[1])
