"""Digests over several texts, and how a digest is shown. Pure."""

import hashlib
from collections.abc import Iterable


def digest(parts: Iterable[str]) -> str:
    """The sha256 over texts, each with its length before it, so that no two lists run together."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode()
        total.update(len(data).to_bytes(8, "big") + data)
    return f"sha256:{total.hexdigest()}"


def short_digest(digest: str) -> str:
    """Enough of a digest to tell it from others: its first 12 digits, as docker shows them."""
    return digest.removeprefix("sha256:")[:12]
