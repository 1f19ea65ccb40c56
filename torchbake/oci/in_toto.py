"""Statements about artifacts: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md Pure."""

from collections.abc import Mapping
from typing import Any

STATEMENT = "https://in-toto.io/Statement/v1"
MEDIA_TYPE = "application/vnd.in-toto+json"


def resource(name: str, digest: str) -> dict[str, Any]:
    """Describe an artifact by its name and its digest ``sha256:…``."""
    algorithm, _, value = digest.partition(":")
    return {"name": name, "digest": {algorithm: value}}


def statement(subject: list[dict[str, Any]], predicate_type: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """State a predicate about artifacts, each described by `resource`."""
    return {"_type": STATEMENT, "subject": subject, "predicateType": predicate_type, "predicate": dict(predicate)}
