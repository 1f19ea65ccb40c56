"""The errors of requests that nobody answers: the innermost cause, the host, and a next step."""

import socket
from http.client import BadStatusLine, IncompleteRead, RemoteDisconnected
from typing import Any, NoReturn

import pytest
import requests
from urllib3.exceptions import ProtocolError

from torchbake.registry.http import Exchange, HttpRequest, PassingError
from torchbake.registry.origin import origin_of


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: Any) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def error_of(name: str, url: str) -> str:
    with pytest.raises(PassingError) as caught:
        Exchange(name).send(HttpRequest(method="GET", url=url))
    assert caught.value.error.hint
    return caught.value.error.message


def test_an_unknown_host_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "does not answer: {}Name or service not known"
    url = f"https://registry-1.docker.io/v2/{'library/' * 30}manifests/latest"
    request = HttpRequest(method="GET", url=url, home=origin_of(url))
    with pytest.raises(PassingError) as caught:
        Exchange("docker.io").send(request)
    assert caught.value.error.message == f"docker.io {reason.format('registry-1.docker.io: ')}"
    assert error_of("ghcr.invalid", "https://ghcr.invalid/v2/") == f"ghcr.invalid {reason.format('')}"
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:3128")
    assert error_of("ghcr.invalid", "https://ghcr.invalid/v2/") == f"ghcr.invalid {reason.format('proxy.invalid: ')}"


def test_the_innermost_cause_is_a_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for inner, text in (
        (RemoteDisconnected("Remote end closed connection without response"), "Remote end closed connection"),
        (BadStatusLine("nonsense\r\n"), "BadStatusLine('nonsense"),
        (IncompleteRead(b"abc", 47), "IncompleteRead(3 bytes read, 47 more expected)"),
        (TimeoutError(110, "Connection timed out"), "Connection timed out"),
    ):

        def fail(*_: Any, error: Exception = inner, **__: Any) -> NoReturn:
            raise requests.ConnectionError(ProtocolError("Connection aborted.", error))

        monkeypatch.setattr(requests.Session, "request", fail)
        assert error_of("h", "https://h/v2/").startswith(f"h does not answer: {text}")
