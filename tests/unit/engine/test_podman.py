"""Podman's own API: what is asked, and how its answers and refusals are read."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from requests import Response

from torchbake.engine import podman
from torchbake.errors import EngineError


class Session:
    """The SDK's client, whose session gives one answer and keeps the questions."""

    base_url = "http+docker://localhost"

    def __init__(self) -> None:
        self.queries: list[tuple[str, str, dict[str, Any]]] = []
        self.status, self.body = 200, b""
        self.api = SimpleNamespace(base_url=self.base_url, request=self.request)

    @contextmanager
    def request(self, method: str, url: str, **options: Any) -> Iterator[Response]:
        self.queries.append((method, url, options))
        answer = Response()
        answer.status_code, answer.raw = self.status, io.BytesIO(self.body)
        yield answer

    def close(self) -> None:
        pass


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    session = Session()
    monkeypatch.setattr(podman, "sdk_client", lambda timeout: session)
    return session


def lines(*events: dict[str, str]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n\n" for event in events)


def test_a_pull_asks_for_no_tls_and_reads_to_the_end(session: Session) -> None:
    session.body = lines({"stream": "Copying blob"}, {"id": "1"})
    podman.pull("127.0.0.1:1/a@sha256:1")
    ((method, url, options),) = session.queries
    assert (method, url) == ("POST", "http+docker://localhost/v4.0.0/libpod/images/pull")
    assert options["params"] == {"reference": "127.0.0.1:1/a@sha256:1", "tlsVerify": "false"}
    session.body = lines({"stream": "Copying blob"}, {"error": "no space left on device"})
    with pytest.raises(EngineError, match="no space left"):
        podman.pull("127.0.0.1:1/a@sha256:1")


def test_an_image_is_handed_out_in_pieces(session: Session) -> None:
    session.body = b"x" * 3_000_000
    with podman.save("1") as pieces:
        assert b"".join(pieces) == session.body


def test_podman_without_volume_export_differs_from_a_failure(session: Session) -> None:
    session.body = b"archive"
    assert podman.exported_volume("v") == b"archive"
    session.status = 404
    assert podman.exported_volume("v") is None
    session.status = 500
    with pytest.raises(EngineError):
        podman.exported_volume("v")


def test_a_refusal_is_told_in_its_words(session: Session) -> None:
    for status, body, words in (
        (404, json.dumps({"message": "no such image\n"}).encode(), "refuses: no such image"),
        (404, b"Not Found\n", "refuses: Not Found"),
        (500, b"", "refuses: status 500"),
        (500, b"[]", r"refuses: \[\]"),
    ):
        session.status, session.body = status, body
        with pytest.raises(EngineError, match=words), podman.save("1"):
            pass


def test_an_answer_that_is_cut_off_is_an_error() -> None:
    answer = SimpleNamespace(iter_lines=lambda: [b'{"stream": "STEP 1"}', b'{"stream'])
    events = podman._events(cast(Response, answer))
    assert next(events) == {"stream": "STEP 1"}
    with pytest.raises(EngineError, match="middle of its answer"):
        next(events)
