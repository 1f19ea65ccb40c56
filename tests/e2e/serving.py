"""HTTP servers of tests: on a free port, ended with the test."""

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@contextmanager
def serving(
    handler: Callable[..., BaseHTTPRequestHandler],
    address: str = "127.0.0.1",
    certificate: Path | None = None,
    port: int = 0,
) -> Iterator[ThreadingHTTPServer]:
    """Start a server, on a free port if ``port`` is 0; with a certificate (and its key in the same folder), by TLS."""
    server = ThreadingHTTPServer((address, port), handler)
    server.daemon_threads = True
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Index(SimpleHTTPRequestHandler):
    requests_seen: list[str]
    wait: Callable[[str], None] = staticmethod(lambda _: None)

    def do_GET(self) -> None:
        self.requests_seen.append(self.path)
        self.wait(self.path)
        with contextlib.suppress(ConnectionError):  # of a client that was killed
            super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def index_of(
    folder: Path, address: str, wait: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[str, list[str]]]:
    """Serve a simple index (PEP 503) of a folder's wheels. Yield its URL, and a list of the requested paths.

    Each answer is sent when ``wait``, which gets the path, has returned.
    """
    requests_seen: list[str] = []
    attributes = {"requests_seen": requests_seen, "wait": staticmethod(wait)}
    with serving(partial(type("Index", (_Index,), attributes), directory=str(folder)), address) as server:
        yield f"http://{address}:{server.server_port}", requests_seen


class _Web(_Index):
    """Folders by the name of a host, below one folder."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(f"/{self.headers['Host']}{path}")

    def do_GET(self) -> None:
        self.requests_seen.append(f"https://{self.headers['Host']}{self.path}")
        SimpleHTTPRequestHandler.do_GET(self)


@contextmanager
def web_of(folder: Path, address: str, certificate: Path) -> Iterator[list[str]]:
    """Serve a folder for each name of a web server, on the port of https. Yield the addresses that were asked for."""
    requests_seen: list[str] = []
    handler = partial(type("Web", (_Web,), {"requests_seen": requests_seen}), directory=str(folder))
    with serving(handler, address, certificate, port=443):
        yield requests_seen
