"""Real registries for tests: Debian's docker-registry on a free loopback port, optionally with a login or TLS."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import requests
import yaml

from tests.e2e.once import in_turn

NAME, PASSWORD = "tester", "s3cret"


@dataclass(frozen=True, kw_only=True)
class Running:
    """A registry at ``host`` with its data in ``folder``; ``ca`` is set if it speaks TLS."""

    host: str
    folder: Path
    ca: Path | None = None


def program(folder: Path, name: str = "docker-registry") -> Path:
    """Return a program; if it is not installed, unpack its Debian package. If there is no package, the test fails."""
    text = shutil.which(name)
    return Path(text) if text else unpacked(folder, name, f"usr/bin/{name}")


def unpacked(folder: Path, package: str, path: str) -> Path:
    """Return a file of a Debian package, which is unpacked below ``folder`` and not installed."""
    there = folder / path
    folder.mkdir(parents=True, exist_ok=True)
    with in_turn(folder / f".{package}.lock"):  # another test may be about to do the same
        if not there.exists():
            command = ["apt-get", "download", "-q", package]
            process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert process.returncode == 0, f"{path} is not here, and Debian's package cannot be had: {process.stderr}"
            (archive,) = folder.glob(f"{package}_*.deb")
            subprocess.run(["dpkg", "-x", archive, folder], check=True)
    return there


@contextmanager
def registry(
    tools: Path, folder: Path, *, login: bool = False, tls: bool = False, port: int = 0, address: str = "127.0.0.1",
    storage: Mapping[str, object] | None = None,
) -> Iterator[Running]:  # fmt: skip
    """Start a registry, wait until it answers, and stop it at the end. ``storage`` are more settings."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or _free_port()
    running = Running(host=f"{address}:{port}", folder=folder / "data", ca=certificate(folder) if tls else None)
    config = folder / "config.yml"
    config.write_text(yaml.safe_dump(_config(running, folder, storage or {}, login=login)))
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [program(tools), "serve", config], stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
        )  # fmt: skip
    try:
        _wait(running, process, folder / "log")
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _config(running: Running, folder: Path, storage: Mapping[str, object], *, login: bool) -> dict[str, object]:
    http: dict[str, object] = {"addr": running.host}
    if running.ca:
        http["tls"] = {"certificate": str(running.ca), "key": str(folder / "key.pem")}
    config: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(running.folder)}, "delete": {"enabled": True}, **storage},
        "http": http,
    }
    if login:
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        (folder / "htpasswd").write_text(f"{NAME}:{hashed}\n")
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    return config


def certificate(folder: Path) -> Path:
    """Make a self-signed certificate for 127.0.0.1, with its key in key.pem."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", folder / "key.pem", "-out", folder / "ca.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "ca.pem"


def _wait(running: Running, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + 20
    scheme = "https" if running.ca else "http"
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            requests.get(f"{scheme}://{running.host}/v2/", timeout=2, verify=str(running.ca) if running.ca else True)
            return
        except requests.RequestException:
            time.sleep(0.05)
    raise AssertionError(f"the registry does not answer: {log.read_text()}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
