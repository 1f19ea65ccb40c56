"""This machine's engine, asked over its socket: where that is, and that nothing but a whole list is taken for one."""

import json
import socket
import threading
from pathlib import Path
from urllib.parse import unquote

import pytest

from torchbake.engine.address import SOCKET
from torchbake.engine.image import Image
from torchbake.engine.local import Inquiry, image_over, local_address

TAG = "acme/pytorch:a"
ENTRY = {"Id": "sha256:1", "RepoTags": [TAG, "acme/pytorch:b"], "Config": {"Labels": {"x": "y"}}, "Size": 3}
TEXT = json.dumps(ENTRY)
OK = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"


def said(answer: str, heard: list[str] | None = None) -> Image | None:
    """What is understood of an engine's answer; ``heard`` is what it was asked."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=answered, args=(theirs, answer, heard))
    thread.start()
    with ours:
        image = image_over(ours, TAG)
    thread.join()
    return image


def answered(connection: socket.socket, answer: str, heard: list[str] | None = None) -> None:
    with connection:
        asked = b""
        while not asked.endswith(b"\r\n\r\n"):
            asked += connection.recv(4096)
        if heard is not None:
            heard.append(unquote(asked.decode().partition(" HTTP")[0]))
        connection.sendall(answer.encode())


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_image_is_known_with_all_of_its_tags(version: str) -> None:
    heard: list[str] = []
    image = said(OK.replace("1.0", version) + TEXT, heard)
    assert image == Image(digest="sha256:1", tags=(TAG, "acme/pytorch:b"), labels={"x": "y"}, size_bytes=3)
    assert heard == [f"GET /images/{TAG}/json"]


def test_an_image_may_have_no_labels() -> None:
    image = said(OK + TEXT.replace('{"x": "y"}', "null"))
    assert image
    assert image.labels == {}


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "SSH-2.0-OpenSSH_9.2\r\n",
        OK,
        OK + TEXT[:-1],
        OK.replace("200", "404") + TEXT,
        OK.replace("HTTP", "HELLO") + TEXT,
        OK.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n") + f"{len(TEXT):x}\r\n{TEXT}\r\n0\r\n\r\n",
        OK + "null",
        OK + "[1]",
        OK + '{"Id": "sha256:1"}',
        OK + TEXT.replace(TAG, "acme/pytorch:c"),
        OK + TEXT.replace(f'["{TAG}", "acme/pytorch:b"]', "3"),
        OK + TEXT.replace('"sha256:1"', "[]"),
        OK + TEXT.replace('{"x": "y"}', "[1]"),
        OK + "[" * 100_000,
    ],
    ids=lambda answer: answer[-20:],
)
def test_what_is_no_whole_image_is_none(answer: str) -> None:
    assert said(answer) is None


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_are_there_or_there_is_no_answer(count: int) -> None:
    tags = tuple(f"acme/pytorch:{number}" for number in range(count))
    image = Image(digest="sha256:1", tags=(*tags, "acme/pytorch:too"), labels={}, size_bytes=3)
    assert Inquiry(lambda tag: image, tags).images() == dict.fromkeys(image.tags, image)
    for missing in tags:
        there = dict.fromkeys(set(tags) - {missing}, image)
        assert Inquiry(there.get, tags).images() is None


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, SOCKET),
        ({"DOCKER_HOST": ""}, SOCKET),
        ({"DOCKER_HOST": "unix:///run/user/1/docker.sock"}, "/run/user/1/docker.sock"),
        ({"DOCKER_HOST": "unix://docker.sock"}, None),
        ({"DOCKER_HOST": "unix://"}, None),
        ({"DOCKER_HOST": "unix:///run/x?y"}, None),
        ({"DOCKER_HOST": "/run/docker.sock"}, None),
        ({"DOCKER_HOST": "tcp://127.0.0.1:2375"}, None),
        ({"DOCKER_HOST": "ssh://host"}, None),
        ({"DOCKER_CONTEXT": "remote"}, None),
        ({"DOCKER_CONTEXT": "default"}, SOCKET),
        ({"DOCKER_HOST": "unix:///x", "DOCKER_CONTEXT": "remote"}, "/x"),
        ({"DOCKER_TLS_VERIFY": "1"}, None),
    ],
)
def test_only_a_socket_that_the_sdk_would_ask_too_is_asked(
    environ: dict[str, str], address: str | None, tmp_path: Path
) -> None:
    assert local_address({"DOCKER_CONFIG": str(tmp_path), **environ}, tmp_path) == address
