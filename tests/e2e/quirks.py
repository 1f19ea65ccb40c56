"""A real registry behind a proxy that refuses requests in the same ways as other registry products."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.e2e.serving import serving
from tests.e2e.unreliable import Handler, Unreliable
from torchbake.oci.manifest import INDEX, MANIFEST, sha256

_MANIFEST = re.compile(r"/v2/(?P<path>.+)/manifests/(?P<key>[^?]+)")
_REFERRERS = re.compile(r"/v2/.+/referrers/(?P<digest>sha256:[0-9a-f]{64})")


@dataclass
class Quirky(Unreliable):
    """The quirks of a registry.

    - ``immutable``: a pattern; a tag that matches is never written twice, not even with the same manifest
    - ``artifacts``: accept manifests whose config is not an image's
    - ``indexes``: accept indexes
    - ``lists``: provide the referrers API, which the real registry lacks
    - ``push``: allow this login to push
    - ``mounts``: mount blobs of other repositories
    - ``life``: seconds that a token is valid; 0: no token is needed
    - ``slow``: the number of blob uploads that take longer than ``life``
    """

    immutable: str = ""
    artifacts: bool = True
    indexes: bool = True
    lists: bool = False
    push: bool = True
    mounts: bool = True
    life: int = 0
    slow: int = 0
    arguments: dict[str, float] = field(default_factory=dict)
    listed: dict[str, list[dict[str, object]]] = field(default_factory=dict)  # descriptors, by subject
    outputs: dict[str, set[str]] = field(default_factory=dict)  # tags, by repository

    def may(self, authorization: str) -> bool:
        return time.monotonic() < self.arguments.get(authorization.removeprefix("Bearer "), 0) + self.life

    def refusal(self, method: str, path: str, body: bytes) -> tuple[int, str, str] | None:
        """Return the status, code and message of a refusal, or None to accept the request."""
        match = _MANIFEST.fullmatch(unquote(path))
        if method not in ("GET", "HEAD") and not self.push:
            return 403, "DENIED", "requested access to the resource is denied"
        if method != "PUT" or match is None:
            return None
        config = json.loads(body).get("config", {}).get("mediaType", "")
        if (config and "image" not in config and not self.artifacts) or (not config and not self.indexes):
            return 400, "MANIFEST_INVALID", f"manifest invalid: unknown config media type {config}"
        if ":" in match["key"]:
            return None
        tags, tag = self.outputs.setdefault(match["path"], set()), match["key"]
        if self.immutable and re.search(self.immutable, tag) and tag in tags:
            words = f"The image tag '{tag}' already exists in the repository and cannot be overwritten."
            return 400, "TAG_INVALID", words
        return None


@contextmanager
def quirky(upstream: str, **quirks: Any) -> Iterator[Quirky]:
    """Start a proxy with these quirks for the registry at ``upstream``."""
    with serving(_Handler) as server:
        state = Quirky(host=f"127.0.0.1:{server.server_port}", upstream=upstream, **quirks)
        state.tokens = state.life
        server.state = state  # type: ignore[attr-defined]
        yield state


class _Handler(Handler):
    _sent_bytes = b""

    def _body(self) -> bytes:
        state: Quirky = self.server.state  # type: ignore[attr-defined]
        body = super()._body()
        if state.life and state.slow > 0 and self.command == "PUT" and "/uploads/" in self.path:
            state.slow -= 1
            time.sleep(state.life + 0.2)
        return body

    def _give_token(self, state: Unreliable) -> None:
        assert isinstance(state, Quirky)
        token = f"token-{len(state.arguments)}"
        state.arguments[token] = time.monotonic()
        self._answer(200, json.dumps({"token": token, "expires_in": state.life}).encode(), {})

    def _list(self, state: Quirky) -> dict[str, str]:
        """Record a written manifest in its subject's referrers, and return the headers of the answer."""
        subject = json.loads(self._sent_bytes).get("subject", {}).get("digest") if state.lists else None
        if subject:
            entry = {"mediaType": MANIFEST, "digest": sha256(self._sent_bytes), "size": len(self._sent_bytes)}
            there = state.listed.setdefault(subject, [])
            there.extend([] if entry in there else [entry])
        return {"OCI-Subject": subject} if subject else {}

    def _fail(self, fault: Any, upstream: str, body: bytes) -> None:
        state: Quirky = self.server.state  # type: ignore[attr-defined]
        refusal = state.refusal(self.command, self.path, body)
        if refusal:
            status, code, words = refusal
            answer = {"errors": [{"code": code, "message": words}]}
            self._answer(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})
            return
        match = _REFERRERS.fullmatch(self.path)
        if state.lists and match:
            index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": state.listed.get(match["digest"], [])}
            self._answer(200, json.dumps(index).encode(), {"Content-Type": INDEX})
            return
        if self.command == "POST" and not state.mounts:
            self.path = re.sub(r"\?mount=.*", "", self.path)
        self._sent_bytes = body
        super()._fail(fault, upstream, body)

    def _pass_on(self, fault: Any, status: int, headers: dict[str, str], data: bytes) -> None:
        state: Quirky = self.server.state  # type: ignore[attr-defined]
        match = _MANIFEST.fullmatch(unquote(self.path))
        if match and self.command == "PUT" and status == 201:
            state.outputs.setdefault(match["path"], set()).add(match["key"])
            headers |= self._list(state)
        super()._pass_on(fault, status, headers, data)
