"""What an image that is FROM one of ours may add and change for itself."""

from collections.abc import Mapping

import pytest

from tests.images.subject import Subject


def holds(name: str, promised: str, found: Mapping[str, str]) -> bool:
    """Whether a promised variable still does its work: PATH with more before or behind, another virtual environment
    whose programs come first. Any other has to be as it was.
    """
    path = found.get("PATH", "")
    if name == "PATH":
        return f":{promised}:" in f":{path}:"
    return name == "VIRTUAL_ENV" and path.startswith(f"{found.get(name)}/bin:")


def left_to(subject: Subject, what: str, found: object, promised: object) -> None:
    """Of what a derived image decides for itself nothing is proven where it did."""
    if subject.origin and found != promised:
        pytest.skip(f"the {what} of an image that is FROM {subject.origin} is its own: {found}")
