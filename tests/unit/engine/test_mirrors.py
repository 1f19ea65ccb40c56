"""The registry mirrors of an engine, as `docker info` and `podman info` show them."""

import json
import shutil
from typing import Any

import pytest

from torchbake.engine import mirrors
from torchbake.engine.docker_cli import DockerCli
from torchbake.engine.mirrors import RegistryMirror, copies_of, engine_mirrors
from torchbake.oci.reference import parse_reference

DEBIAN = parse_reference("debian:bookworm-slim")
# Of Docker 28 with `registry-mirrors`, and of podman's socket.
DOCKER = {
    "IndexConfigs": {
        "docker.io": {
            "Mirrors": ["https://mirror.example/", "http://10.0.0.7:5000/"], "Name": "docker.io", "Official": True,
            "Secure": True,
        }
    },
    "Mirrors": ["https://mirror.example/", "http://10.0.0.7:5000/"],
}  # fmt: skip
PODMAN_SOCKET = {
    "IndexConfigs": {
        "docker.io": {"Name": "docker.io", "Mirrors": ["mirror.example:5000/hub"], "Secure": True},
        "docker.io/library": {"Name": "docker.io/library", "Mirrors": ["127.0.0.1:5000/base"], "Secure": True},
        "quay.io": {"Name": "quay.io", "Mirrors": [], "Secure": True},
    },
    "Mirrors": [],
}
PODMAN = {
    "search": ["docker.io"],
    "docker.io": {
        "Prefix": "docker.io", "Location": "docker.io", "Insecure": False, "Blocked": False,
        "Mirrors": [{"Location": "mirror.example:5000", "Insecure": True, "PullFromMirror": ""}],
    },
}  # fmt: skip


def copies(monkeypatch: pytest.MonkeyPatch, config: object, image: str = "debian:bookworm-slim") -> list[str]:
    info: dict[str, Any] = {"ServerVersion": "28.2.2", "RegistryConfig": config}
    monkeypatch.setattr(mirrors, "ask_docker", lambda _: DockerCli(path="docker", info=info))
    return [
        f"{copy} {mirror.plain or mirror.insecure}"
        for mirror, copy in copies_of(parse_reference(image), engine_mirrors({}))
    ]


def test_mirrors_of_docker_are_for_its_hub_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    both = ["mirror.example/library/debian:bookworm-slim False", "10.0.0.7:5000/library/debian:bookworm-slim True"]
    assert copies(monkeypatch, DOCKER) == both
    assert copies(monkeypatch, {"IndexConfigs": None, "Mirrors": DOCKER["Mirrors"]}) == both
    assert copies(monkeypatch, DOCKER, "ghcr.io/acme/debian:12") == []
    for config in (None, {}, {"IndexConfigs": {"docker.io": {"Mirrors": None}}, "Mirrors": None}):
        assert copies(monkeypatch, config) == []


def test_the_longest_prefix_of_podman_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert copies(monkeypatch, PODMAN_SOCKET) == ["127.0.0.1:5000/base/debian:bookworm-slim False"]
    assert copies(monkeypatch, PODMAN_SOCKET, "acme/debian:12") == ["mirror.example:5000/hub/acme/debian:12 False"]
    assert copies(monkeypatch, PODMAN_SOCKET, "quay.io/acme/debian:12") == []


def test_podman_itself_is_asked_without_a_docker_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "ask_docker", lambda _: DockerCli(error="there is no docker command in PATH"))
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert engine_mirrors({}) == []
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "/usr/bin/podman")
    monkeypatch.setattr(mirrors, "run", lambda *_: (0, json.dumps({"registries": PODMAN}), ""))
    assert engine_mirrors({}) == [RegistryMirror(prefix="docker.io", location="mirror.example:5000", insecure=True)]
    monkeypatch.setattr(mirrors, "run", lambda *_: (125, "", "cannot connect"))
    assert engine_mirrors({}) == []


def test_a_prefix_is_a_whole_part_of_a_name() -> None:
    mirror = RegistryMirror(prefix="docker.io/lib", location="mirror.example")
    assert mirror.copy_of(DEBIAN) is None
    exact = RegistryMirror(prefix="docker.io/library/debian", location="mirror.example/copy")
    assert str(exact.copy_of(DEBIAN)) == "mirror.example/copy:bookworm-slim"
