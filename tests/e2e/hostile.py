"""A hostile registry: a test decides each answer, and the registry records all requests."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.e2e.serving import serving


@dataclass(frozen=True, kw_only=True)
class OnMessage:
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer. ``length`` is the Content-Length header: empty for the real length, None for no header."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    length: str | None = ""


def reply(status: int = 200, body: bytes = b"", length: str | None = "", **headers: str) -> Reply:
    """Make a reply; underscores in ``headers`` names become hyphens."""
    names = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(status=status, body=body, headers=names, length=length)


@dataclass
class Hostile:
    """A hostile registry's address, behaviour and recorded requests. If ``answer`` returns None, the reply is 404."""

    host: str
    scheme: str
    answer: Callable[[OnMessage], Reply | None] = lambda _: None
    messages: list[OnMessage] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}"

    @property
    def secrets(self) -> list[str]:
        """All credentials that it received, in headers and bodies."""
        return [one.authorization for one in self.messages if one.authorization] + [
            one.body.decode() for one in self.messages if b"token" in one.body
        ]


@contextmanager
def hostile(
    answer: Callable[[OnMessage], Reply | None] | None = None, *, certificate: Path | None = None
) -> Iterator[Hostile]:
    """Start a registry on a free port; with a certificate (and key.pem in the same folder) it speaks TLS."""
    with serving(_Handler, certificate=certificate) as server:
        state = Hostile(host=f"127.0.0.1:{server.server_port}", scheme="https" if certificate else "http")
        state.answer = answer or state.answer
        server.state = state  # type: ignore[attr-defined]
        yield state


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        state: Hostile = self.server.state  # type: ignore[attr-defined]
        message = OnMessage(
            method=self.command, path=self.path, headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
        )  # fmt: skip
        state.messages.append(message)
        self._answer(state.answer(message) or reply(404))

    def _answer(self, answer: Reply) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.length is not None:
            self.send_header("Content-Length", answer.length or str(len(answer.body)))
        self.close_connection = answer.length != ""  # else nobody could tell where it ends
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_PUT = do_POST = _serve  # noqa: N815 - the base class's names
