"""HTTP servers of tests: on a free port, ended with the test."""

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
    handler: Callable[..., BaseHTTPRequestHandler], address: str = "127.0.0.1", certificate: Path | None = None
) -> Iterator[ThreadingHTTPServer]:
    """Start one; with a certificate (its key beside it) it speaks TLS."""
    server = ThreadingHTTPServer((address, 0), handler)
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
    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def index_of(folder: Path, address: str) -> Iterator[tuple[str, list[str]]]:
    """A simple index (PEP 503) of a folder's wheels: where it is, and what it has been asked for."""
    seen: list[str] = []
    with serving(partial(type("Index", (_Index,), {"seen": seen}), directory=str(folder)), address) as server:
        yield f"http://{address}:{server.server_port}", seen
