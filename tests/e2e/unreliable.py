"""A registry that fails: a proxy before a real one, which answers wrongly as it is told, and right otherwise."""

import base64
import http.client
import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal
from urllib.parse import urlsplit

from tests.e2e.serving import serving

Fault = Literal["", "500", "503", "429", "reset", "lost", "truncated", "digest", "unknown-upload", "401"]
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass
class Unreliable:
    """The proxy's state: ``choose`` returns the fault of each request from its number, method and path.

    ``lost`` forwards the request and drops the answer; the other faults refuse the request or damage the answer. If
    ``tokens`` is not 0, every request needs a token, and a token is valid for that many requests.
    """

    host: str
    upstream: str
    choose: Callable[[int, str, str], Fault] = lambda *_: ""
    tokens: int = 0
    requests: list[tuple[str, str, Fault]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    uses: dict[str, int] = field(default_factory=dict)

    def fault(self, method: str, path: str) -> Fault:
        with self.lock:
            value = self.choose(len(self.requests), method, path)
            self.requests.append((method, path, value))
        return value

    def may(self, authorization: str) -> bool:
        """Use up one request of the token. Return False if the token is unknown or used up."""
        token = authorization.removeprefix("Bearer ")
        with self.lock:
            if token not in self.uses or self.uses[token] == 0:
                return False
            self.uses[token] -= 1
        return True


def at_random(seed: int, share: float) -> Callable[[int, str, str], Fault]:
    """Return a chooser that lets a share of all requests fail at random; one seed gives one sequence of faults."""
    source = random.Random(seed)
    faults: list[Fault] = ["500", "503", "429", "reset", "lost", "truncated", "digest", "unknown-upload"]
    return lambda *_: source.choice(faults) if source.random() < share else ""


@contextmanager
def unreliable(upstream: str) -> Iterator[Unreliable]:
    """Start an unreliable proxy of the registry at ``upstream``."""
    with serving(Handler) as server:
        state = Unreliable(host=f"127.0.0.1:{server.server_port}", upstream=upstream)
        server.state = state  # type: ignore[attr-defined]
        yield state


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        state: Unreliable = self.server.state  # type: ignore[attr-defined]
        body = self._body()
        if self.path.startswith("/token"):
            self._give_token(state)
        elif state.tokens and not state.may(self.headers.get("Authorization", "")):
            self._refuse_token(state)
        else:
            self._fail(state.fault(self.command, self.path), state.upstream, body)

    def _fail(self, fault: Fault, upstream: str, body: bytes) -> None:
        if fault in ("500", "503", "429"):
            more = {"Retry-After": "0"} if fault == "429" else {}
            self._answer(int(fault), b'{"errors":[{"code":"UNKNOWN","message":"no luck"}]}', more)
        elif fault == "401":
            self._answer(401, b"{}", {"WWW-Authenticate": 'Basic realm="x"'})
        elif fault == "unknown-upload" and "/uploads/" in self.path and self.command == "PUT":
            self._answer(404, b'{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN","message":"who?"}]}', {})
        elif fault == "reset":
            self._reset()
        else:
            self._pass_on(fault, *self._forward(upstream, body))

    def _pass_on(self, fault: Fault, status: int, headers: dict[str, str], data: bytes) -> None:
        if fault == "lost":
            self._reset()
        elif fault == "truncated" and len(data) > 1:
            self._answer(status, data[: len(data) // 2], headers, length=len(data))
        elif fault == "digest" and self.command == "GET" and data:
            self._answer(status, bytes([data[0] ^ 1]) + data[1:], headers)
        else:
            self._answer(status, data, headers)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - the base class's names

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _forward(self, upstream: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        headers.pop("Authorization", None)
        # The registry writes its own address into what it answers: it is to write ours.
        headers["Host"] = self.headers["Host"]
        line = http.client.HTTPConnection(upstream, timeout=30)
        try:
            line.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
            answer = line.getresponse()
            data = answer.read()
            answer_headers = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
            if self.command == "HEAD":
                answer_headers["Content-Length"] = answer.getheader("Content-Length", "0")
            return answer.status, answer_headers, data
        finally:
            line.close()

    def _answer(self, status: int, data: bytes, headers: dict[str, str], length: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        if length is not None:
            self._reset()

    def _reset(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.connection.close()

    def _give_token(self, state: Unreliable) -> None:
        token = base64.b64encode(random.randbytes(12)).decode()
        with state.lock:
            state.uses[token] = state.tokens
        self._answer(200, json.dumps({"token": token}).encode(), {})

    def _refuse_token(self, state: Unreliable) -> None:
        query = f'Bearer realm="http://{state.host}/token",service="test",scope="{urlsplit(self.path).path}"'
        self._answer(401, b'{"errors":[{"code":"UNAUTHORIZED"}]}', {"WWW-Authenticate": query})
