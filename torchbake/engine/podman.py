"""Podman's own API, which its socket has in addition to Docker's: pulls without TLS, and archives of images.

Docker's API of podman always uses TLS for 127.0.0.1. Podman has its own API since version 4.0.
Source: https://docs.podman.io/en/latest/_static/api.html
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import requests

from torchbake.engine.client import answering
from torchbake.engine.sdk import sdk_client
from torchbake.errors import EngineError

_API = "/v4.0.0/libpod"
_SILENCE = 1800  # seconds without an answer, while podman unpacks
_CHUNK = 2**20


def pull(reference: str) -> None:
    """Pull an image by plain HTTP. Raises EngineError."""
    with _asking("POST", "/images/pull", {"reference": reference, "tlsVerify": "false"}) as answer:
        for event in _events(answer):
            if "error" in event:
                raise EngineError(f"The engine cannot pull {reference}: {event['error']}")


@contextlib.contextmanager
def save(image: str) -> Iterator[Iterator[bytes]]:
    """Yield the pieces of an archive of an image's OCI layout with uncompressed layers. Raises EngineError."""
    query = {"references": image, "format": "oci-archive", "ociAcceptUncompressedLayers": "true"}
    with _asking("GET", "/images/export", query) as answer:
        yield answer.iter_content(_CHUNK)


def exported_volume(name: str) -> bytes | None:
    """Return a tar archive of a volume with the owners of its files; None before podman 5.6, which cannot export."""
    with _asking("GET", f"/volumes/{name}/export", {}, refusable=True) as answer:
        return answer.content if answer.ok else None


@contextlib.contextmanager
def _asking(
    method: str, path: str, parameters: Mapping[str, str], *, refusable: bool = False
) -> Iterator[requests.Response]:
    with answering(), contextlib.closing(sdk_client(_SILENCE)) as client:
        url = f"{client.api.base_url}{_API}{path}"
        with client.api.request(method, url, params=dict(parameters), stream=True, timeout=_SILENCE) as answer:
            if not answer.ok and not (refusable and answer.status_code == HTTPStatus.NOT_FOUND):
                raise EngineError(f"The engine refuses: {_reason(answer)}")
            yield answer


def _events(answer: requests.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.strip():
            try:
                event = json.loads(line)
            except ValueError:
                raise EngineError("The engine ended in the middle of its answer.") from None
            yield event if isinstance(event, dict) else {}


def _reason(answer: requests.Response) -> str:
    try:
        return str(answer.json()["message"]).strip()
    except (ValueError, LookupError, TypeError):
        return answer.text.strip() or f"status {answer.status_code}"
