"""Serve images of layouts to an engine: the pull half of a registry, on this machine's 127.0.0.1 alone.

Every user of this machine can connect to the port. So blobs are served below a repository name that cannot be guessed,
and no answer lists anything.
Source: https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer

from torchbake.oci.manifest import Blob
from torchbake.store.layout import Layout

_ADDRESS = "127.0.0.1"
_PATH = re.compile(r"/v2/(?P<repository>.+)/(?:manifests|blobs)/(?P<digest>sha256:[0-9a-f]{64})(?:\?.*)?")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_IDLE = 60  # seconds until a silent connection is closed
_POLL = 0.05  # seconds until the end of a run is noticed


@dataclass(frozen=True, kw_only=True)
class LayoutServer:
    """A running server of one repository, ``host/path``; it serves the images that were added, by digest."""

    repository: str
    blobs: dict[str, tuple[Path, Blob]]

    def add(self, layout: Layout, digest: str) -> None:
        """Serve an image of a layout. Raises LookupError if the layout does not hold all of it."""
        manifest = layout.find(digest)
        if manifest is None:
            raise LookupError(digest)
        self.blobs.update({blob.digest: (layout.path(blob.digest), blob) for blob in (*manifest.blobs, manifest.own)})


@contextlib.contextmanager
def serving(path: str) -> Iterator[LayoutServer]:
    """Serve a repository of this path on a free port, in threads of this process. Raises OSError."""
    blobs: dict[str, tuple[Path, Blob]] = {}
    with _Server((_ADDRESS, 0), handler(path, blobs)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL,), name="layout server", daemon=True)
        thread.start()
        try:
            yield LayoutServer(repository=f"{_ADDRESS}:{server.server_port}/{path}", blobs=blobs)
        finally:
            server.shutdown()
            thread.join()


def handler(path: str, blobs: Mapping[str, tuple[Path, Blob]]) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers the requests of one connection."""
    return type("Handler", (_Handler,), {"repository": path, "blobs": blobs})


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: the engine reports a pull that breaks off."""

    def server_bind(self) -> None:
        """Bind without a look-up of the address's name, which can take long where DNS does not answer."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _ADDRESS, self.socket.getsockname()[1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Docker tries TLS first, and then HTTP if the answer to its TLS greeting begins with a status line. Python writes
    # none if a request names no version of HTTP.
    default_request_version = "HTTP/1.1"
    timeout = _IDLE
    repository: str
    blobs: Mapping[str, tuple[Path, Blob]]

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a line would show the repository's name."""

    def _answer(self, *, body: bool) -> None:
        match = _PATH.fullmatch(self.path)
        blobs = self.blobs.get(match["digest"]) if match and match["repository"] == self.repository else None
        if blobs is None:
            self._head(HTTPStatus.OK if self.path == "/v2/" else HTTPStatus.NOT_FOUND, 0)
            return
        path, blob = blobs
        first, count = _part(self.headers.get("Range", ""), blob.size)
        if count <= 0 < blob.size:
            self._head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0, {"Content-Range": f"bytes */{blob.size}"})
            return
        whole = count == blob.size
        more = {"Content-Type": blob.media_type, "Docker-Content-Digest": blob.digest, "Accept-Ranges": "bytes"}
        if not whole:
            more["Content-Range"] = f"bytes {first}-{first + count - 1}/{blob.size}"
        with path.open("rb") as file:
            self._head(HTTPStatus.OK if whole else HTTPStatus.PARTIAL_CONTENT, count, more)
            if body:
                self.wfile.flush()
                # After a truncated file the client would wait for the missing bytes.
                self.close_connection |= self.connection.sendfile(file, first, count or None) != count

    def _head(self, status: HTTPStatus, length: int, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(more or {}), "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()


def _part(header: str, size: int) -> tuple[int, int]:
    """Return the first byte and the number of bytes that a Range header asks for; all if it has another form."""
    match = _RANGE.fullmatch(header.strip())
    if not match:
        return 0, size
    first = int(match[1])
    last = min(int(match[2]), size - 1) if match[2] else size - 1
    return first, last - first + 1
