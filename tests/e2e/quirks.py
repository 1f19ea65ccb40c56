"""A real registry seen through the quirks of others: what registries refuse, and how they say so."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.e2e.serving import serving
from tests.e2e.unreliable import Handler, Unreliable

_MANIFEST = re.compile(r"/v2/(?P<path>.+)/manifests/(?P<key>[^?]+)")


@dataclass
class Quirky(Unreliable):
    """``immutable``: a pattern; a tag that holds it is not written twice, not even with what it is."""

    immutable: str = ""
    written: dict[str, set[str]] = field(default_factory=dict)  # tags, by repository

    def refusal(self, method: str, path: str, body: bytes) -> tuple[int, str, str] | None:
        """The status, code and words of a refusal."""
        match = _MANIFEST.fullmatch(unquote(path))
        if method != "PUT" or match is None or ":" in match["key"]:
            return None
        tags, tag = self.written.setdefault(match["path"], set()), match["key"]
        if self.immutable and re.search(self.immutable, tag) and tag in tags:
            words = f"The image tag '{tag}' already exists in the repository and cannot be overwritten."
            return 400, "TAG_INVALID", words
        return None


@contextmanager
def quirky(upstream: str, **quirks: Any) -> Iterator[Quirky]:
    """Start one before the registry at ``upstream``."""
    with serving(_Handler) as server:
        state = Quirky(host=f"127.0.0.1:{server.server_port}", upstream=upstream, **quirks)
        server.state = state  # type: ignore[attr-defined]
        yield state


class _Handler(Handler):
    def _fail(self, fault: Any, upstream: str, body: bytes) -> None:
        state: Quirky = self.server.state  # type: ignore[attr-defined]
        refusal = state.refusal(self.command, self.path, body)
        if refusal:
            status, code, words = refusal
            answer = {"errors": [{"code": code, "message": words}]}
            self._answer(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})
            return
        super()._fail(fault, upstream, body)

    def _pass_on(self, fault: Any, status: int, headers: dict[str, str], data: bytes) -> None:
        state: Quirky = self.server.state  # type: ignore[attr-defined]
        match = _MANIFEST.fullmatch(unquote(self.path))
        if match and self.command == "PUT" and status == 201:
            state.written.setdefault(match["path"], set()).add(match["key"])
        super()._pass_on(fault, status, headers, data)
