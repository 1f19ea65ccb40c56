"""Additions and changes that an image may make to the torchbake image that it is FROM."""

from collections.abc import Mapping

import pytest

from tests.images.subject import Subject


def holds(name: str, promise: str, matches: Mapping[str, str]) -> bool:
    """Return True if a promised variable still has its effect.

    PATH may have more folders before or after the promised ones, and VIRTUAL_ENV may name another environment if its
    programs come first. The variables of uv matter to a build alone. Every other variable must have the promised value.
    """
    path = matches.get("PATH", "")
    if name == "PATH":
        return f":{promise}:" in f":{path}:"
    if name in ("UV_PROJECT_ENVIRONMENT", "UV_PYTHON_DOWNLOADS"):
        return True
    return name == "VIRTUAL_ENV" and path.startswith(f"{matches.get(name)}/bin:")


def left_to(subject: Subject, what: str, value: object, promise: object) -> None:
    """Skip the check if a derived image changed the promised value."""
    if subject.origin and value != promise:
        pytest.skip(f"the {what} of an image that is FROM {subject.origin} is its own: {value}")
