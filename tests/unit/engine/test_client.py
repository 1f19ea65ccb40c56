"""The error for an engine that does not answer: its address, and the system's reason in words."""

import http.client
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

import docker
import pytest
import requests
from docker.errors import DockerException, NotFound
from urllib3.exceptions import IncompleteRead, ProtocolError

from torchbake.engine import client, sdk
from torchbake.engine.address import DEFAULT
from torchbake.engine.docker_cli import DockerCli
from torchbake.engine.leftovers import remove_loopback_names
from torchbake.errors import EngineError


def wrapped(error: BaseException) -> DockerException:
    """As requests and the SDK wrap it."""
    inner = requests.ConnectionError(ProtocolError("Connection aborted.", error))
    return DockerException(f"Error while fetching server API version: {inner}", inner)


REASONS = [
    (wrapped(FileNotFoundError(2, "No such file or directory")), "there is no such socket."),
    (wrapped(ConnectionRefusedError(111, "Connection refused")), "nobody listens there."),
    (wrapped(PermissionError(13, "Permission denied")), "you may not open that socket; members of its group"),
    (wrapped(socket.gaierror(-2, "Name or service not known")), "no such host is known."),
    (wrapped(ssl.SSLCertVerificationError(1, "self-signed certificate")), "has signed its certificate."),
    (wrapped(http.client.RemoteDisconnected("Remote end closed")), "it closes the connection."),
    (wrapped(http.client.BadStatusLine("SSH-2.0")), "what answers is not an engine."),
    (requests.exceptions.ReadTimeout("Read timed out."), "it says nothing."),
    (DockerException("Invalid bind address protocol: foo://x"), "Invalid bind address protocol: foo://x."),
    (ValueError("Port out of range 0-65535"), "Port out of range 0-65535."),
]


def fail(error: BaseException) -> Callable[..., docker.DockerClient]:
    def failing(*_: object, **__: object) -> docker.DockerClient:
        raise error

    return failing


@pytest.mark.parametrize(("error", "words"), REASONS, ids=lambda value: str(value)[:20])
def test_no_engine_is_told_with_its_address_in_words(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/x.sock")
    monkeypatch.setattr(docker, "DockerClient", fail(error))
    with pytest.raises(EngineError) as caught:
        client.connect()
    message = caught.value.message
    assert message.startswith("No container engine answers at unix:///run/x.sock (from DOCKER_HOST): ")
    assert words in message
    assert not set(message.partition(": ")[2]) & set("()[]")
    assert caught.value.hint
    assert "nox -s setup" in caught.value.hint


@pytest.mark.parametrize(
    ("error", "words", "expected"),
    [
        (http.client.RemoteDisconnected("Remote end closed"), "Host key verification failed", "Host key verification"),
        (BrokenPipeError(32, "Broken pipe"), "Host key verification failed", "Host key verification"),
        (http.client.RemoteDisconnected("Remote end closed"), "", "it closes the"),
        (http.client.BadStatusLine("Welcome"), "Authorized uses only", "what answers is not an engine"),
    ],
)
def test_an_engine_by_ssh_is_missing_in_the_words_of_ssh(
    error: Exception, words: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@far")
    monkeypatch.setattr(client, "sdk_client", fail(wrapped(error)))
    monkeypatch.setattr(sdk, "relay", lambda host: "unix:///tmp/x/docker.sock")
    monkeypatch.setattr(sdk, "last_message", lambda address: words)
    with pytest.raises(EngineError, match=rf"ssh://me@far \(from DOCKER_HOST\): {expected}"):
        client.connect()


def test_the_default_address_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "DockerClient", fail(wrapped(FileNotFoundError(2, "No such file or directory"))))
    with pytest.raises(EngineError, match=r"at unix:///var/run/docker.sock \(docker's default\): there is no"):
        client.connect()


def test_an_engine_that_falls_silent_is_told_in_words() -> None:
    reset = ProtocolError("Connection aborted.", ConnectionResetError(104, "Connection reset by peer"))
    with pytest.raises(EngineError, match=r"does not answer: it closes the connection\."), client.answering():
        raise requests.ConnectionError(reset)


class Listing:
    """An engine's list of images, which fails so often because one is being removed."""

    def __init__(self, failures: int) -> None:
        self.api, self.left = self, failures

    def images(self, **selection: object) -> list[dict[str, object]]:
        self.left -= 1
        if self.left >= 0:
            raise NotFound("failed to calculate size of image a:1: content digest sha256:0 not found")
        return [{"Id": "sha256:1", "RepoTags": ["a:1"], "Labels": {}, "Size": 1}]


def test_an_image_that_is_removed_meanwhile_does_not_end_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PAUSE", 0)
    assert list(client.Engine(cast(docker.DockerClient, Listing(2))).images()) == ["a:1"]
    remove_loopback_names(client.Engine(cast(docker.DockerClient, Listing(2))))
    with pytest.raises(EngineError, match="content digest sha256:0 not found"):
        client.Engine(cast(docker.DockerClient, Listing(9))).images()


def test_an_error_among_the_words_of_a_load_is_an_error() -> None:
    good = {"stream": "Loaded image ID: sha256:1\n"}
    assert client.read_load([good, {"stream": " \n"}, {"status": "x"}]) == ("Loaded image ID: sha256:1",)
    for bad in ({"stream": "Error unpacking image sha256:1: no space left\n"}, {"error": "unexpected EOF"}):
        with pytest.raises(EngineError, match=r"no space left|unexpected EOF"):
            client.read_load([good, bad])


DOCKER: dict[str, Any] = {"ID": "a", "ServerVersion": "26.1.5", "DockerRootDir": "/data"}


class Answering:
    """An engine of one of two kinds, which says who it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self) -> dict[str, object]:
        return DOCKER

    def version(self) -> dict[str, object]:
        return {"ApiVersion": "1.45", "Components": [{"Name": self._name}]}


@pytest.mark.parametrize(
    ("name", "cli", "words"),
    [
        ("Engine", DockerCli(path="docker", info=DOCKER), ""),
        ("Engine", DockerCli(), ""),
        ("Engine", DockerCli(path="docker", info={**DOCKER, "ID": "b"}), "another engine"),
        ("Engine", DockerCli(path="docker", error="permission denied"), "does not reach the engine"),
        ("Podman Engine", DockerCli(path="docker", info={**DOCKER, "ID": "b"}), ""),
        ("Podman Engine", DockerCli(path="docker", info={**DOCKER, "DockerRootDir": "/other"}), "another engine"),
    ],
)
def test_sdk_and_docker_command_must_reach_one_engine(name: str, cli: DockerCli, words: str) -> None:
    engine = client.Engine(cast(docker.DockerClient, Answering(name)), DEFAULT)
    engine.cli = cli
    if not words:
        client._check_same(engine)
        return
    with pytest.raises(EngineError, match=words) as caught:
        client._check_same(engine)
    assert DEFAULT.host in caught.value.message


def test_an_engine_that_ends_amid_a_pull_is_an_error_in_words() -> None:
    broken = ProtocolError("Connection broken", IncompleteRead(0, 1))
    with pytest.raises(EngineError, match=r"does not answer: it closes the connection\."), client.answering():
        raise broken
