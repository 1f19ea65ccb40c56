"""Images of a layout as an engine would pull them, over a connection without a network."""

import socket
import threading
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import pytest

from tests.unit.layouts import archive, blobs_of, file, put
from torchbake.store.layout import Layout
from torchbake.store.layout_server import LayoutServer, handler

PATH = f"torchbake/00/{'5' * 32}"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(folder=tmp_path)


class Answering:
    """A server of one image."""

    def __init__(self, layout: Layout, digest: str) -> None:
        self.server = LayoutServer(repository=f"127.0.0.1:1/{PATH}", blobs={})
        self.server.add(layout, digest)

    def raw(self, request: bytes) -> bytes:
        """Send bytes over one connection, and return the whole answer."""
        ours, theirs = socket.socketpair()
        kind = handler(PATH, self.server.blobs)

        def answer() -> None:
            with theirs:
                kind(theirs, ("", 0), None)  # type: ignore[arg-type] # it does not use its server

        thread = threading.Thread(target=answer)
        thread.start()
        with ours:
            ours.sendall(request)
            ours.shutdown(socket.SHUT_WR)
            answered = b"".join(iter(lambda: ours.recv(2**16), b""))
        thread.join(10)
        assert not thread.is_alive()
        return answered

    def ask(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, Message, bytes]:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in headers.items())]
        head, _, body = self.raw("\r\n".join([*lines, "", ""]).encode()).partition(b"\r\n\r\n")
        status, _, rest = head.partition(b"\r\n")
        return int(status.split()[1]), BytesParser().parsebytes(rest), body

    def blob(self, digest: str, **options: str) -> tuple[int, Message, bytes]:
        return self.ask(f"/v2/{PATH}/blobs/{digest}", **options)


@pytest.fixture
def digest(layout: Layout) -> str:
    return put(layout, archive(file("a", b"1" * 5000)))


@pytest.fixture
def answering(layout: Layout, digest: str) -> Answering:
    return Answering(layout, digest)


def test_a_manifest_and_its_blobs_are_served_by_digest(answering: Answering, layout: Layout, digest: str) -> None:
    code, headers, body = answering.ask(f"/v2/{PATH}/manifests/{digest}")
    assert (code, body) == (200, layout.path(digest).read_bytes())
    assert headers["Content-Type"] == "application/vnd.oci.image.manifest.v1+json"
    assert headers["Docker-Content-Digest"] == digest
    for path in blobs_of(layout, digest):
        code, headers, body = answering.blob(f"sha256:{path.name}")
        assert (code, body, headers["Content-Length"]) == (200, path.read_bytes(), str(len(body)))
        code, headers, none = answering.blob(f"sha256:{path.name}", method="HEAD")
        assert (code, none, headers["Content-Length"]) == (200, b"", str(len(body)))


def test_a_part_of_a_blob_is_served(answering: Answering, layout: Layout, digest: str) -> None:
    path, _ = blobs_of(layout, digest)
    data, name = path.read_bytes(), f"sha256:{path.name}"
    size = len(data)
    for expected, first, last in (("5-9", 5, 9), ("7-", 7, size - 1), (f"{size - 2}-{size + 99}", size - 2, size - 1)):
        code, headers, body = answering.blob(name, Range=f"bytes={expected}")
        assert (code, body) == (206, data[first : last + 1])
        assert headers["Content-Range"] == f"bytes {first}-{last}/{size}"
    assert answering.blob(name, Range=f"bytes={size}-")[0] == 416
    assert answering.blob(name, Range="bytes=0-1,3-4")[2] == data


def test_nothing_else_is_served_or_listed(answering: Answering, layout: Layout, digest: str, tmp_path: Path) -> None:
    other = put(layout, archive(file("other")))
    (tmp_path / "secret").write_text("secret")
    wrong = (
        "/", "/v2/_catalog", f"/v2/{PATH}/tags/list", f"/v2/{PATH}/manifests/latest", f"/v2/{PATH}/manifests/{other}",
        f"/v2/{PATH[:-1]}6/manifests/{digest}", f"/v2/torchbake/manifests/{digest}", f"/v2/{PATH}/blobs/../../secret",
    )  # fmt: skip
    for path in wrong:
        code, _, body = answering.ask(path)
        assert (code, body) == (404, b""), path
    assert answering.ask("/v2/")[0] == 200
    assert answering.ask(f"/v2/{PATH}/manifests/{digest}", method="DELETE")[0] == 501


def test_a_tls_greeting_is_answered_with_a_status_line(answering: Answering) -> None:
    """Docker tries TLS first, and HTTP only after such an answer."""
    assert answering.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n").startswith(b"HTTP/1.1 400 ")


def test_a_file_that_was_cut_short_ends_the_connection(answering: Answering, layout: Layout, digest: str) -> None:
    path, _ = blobs_of(layout, digest)
    data = path.read_bytes()
    path.write_bytes(data[:4])
    request = f"GET /v2/{PATH}/blobs/sha256:{path.name} HTTP/1.1\r\n\r\n".encode()
    assert answering.raw(request * 2).count(b"HTTP/1.1 200") == 1


def test_an_image_that_is_not_whole_is_not_served(layout: Layout, digest: str) -> None:
    blobs_of(layout, digest)[0].unlink()
    with pytest.raises(LookupError):
        Answering(layout, digest)


def test_an_image_that_is_named_by_its_config_is_served_whole(layout: Layout, tmp_path: Path) -> None:
    digest = put(Layout(folder=tmp_path / "export"), archive(file("a", b"content")))
    layout.take(tmp_path / "export", digest)
    config = f"sha256:{blobs_of(layout, digest)[-1].name}"
    served = Answering(layout, config)
    assert [served.blob(one)[2] for one in (digest, config)] == [
        layout.path(one).read_bytes() for one in (digest, config)
    ]
