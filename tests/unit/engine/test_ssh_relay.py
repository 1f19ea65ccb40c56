"""The ssh by which an engine elsewhere is reached: its words, as the docker command would write them."""

import shutil
import socket
from pathlib import Path
from unittest.mock import Mock

import pytest

from torchbake.engine.ssh_relay import _relay, last_message, ssh_command
from torchbake.errors import EngineError

BEGIN, END = ["ssh", "-o", "ConnectTimeout=30", "-T"], ["system", "dial-stdio"]


@pytest.fixture(autouse=True)
def _ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.parametrize(
    ("host", "options", "docker"),
    [
        ("ssh://far", ["--", "far"], ["docker"]),
        ("ssh://me@[fe80::1]:22", ["-l", "me", "-p", "22", "--", "fe80::1"], ["docker"]),
        ("ssh://me@far:2222", ["-l", "me", "-p", "2222", "--", "far"], ["docker"]),
        ("ssh://far/run/d.sock", ["--", "far"], ["docker", "--host", "unix:///run/d.sock"]),
        ("ssh://-oProxyCommand=x", ["--", "-oProxyCommand=x"], ["docker"]),
    ],
)
def test_the_words_are_those_of_the_docker_command(host: str, options: list[str], docker: list[str]) -> None:
    assert ssh_command(host) == [*BEGIN, *options, *docker, *END]


@pytest.mark.parametrize("host", ["ssh://", "ssh://me:secret@far", "ssh://far:port", "ssh://far?x=1"])
def test_what_is_no_address_is_an_error(host: str) -> None:
    with pytest.raises(EngineError, match="is no address of an engine"):
        ssh_command(host)


def test_without_ssh_there_is_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(EngineError, match="ssh command is not installed"):
        ssh_command("ssh://far")


@pytest.mark.usefixtures("own_processes")
def test_the_last_message_of_ssh_is_kept(tmp_path: Path) -> None:
    """The engine's client sees a closed connection alone."""
    address = f"unix://{tmp_path}/docker.sock"
    assert last_message(address) == ""
    ours, theirs = socket.socketpair()
    server = Mock(accept=Mock(side_effect=[(theirs, None), InterruptedError]))
    words = ["sh", "-c", "echo one >&2; echo 'Host key verification failed.' >&2"]
    with ours:
        with pytest.raises(InterruptedError):
            _relay(server, words, tmp_path / "errors")
        assert ours.recv(1) == b""  # ssh has ended
    assert last_message(address) == "Host key verification failed."
