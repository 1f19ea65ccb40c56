"""Digests: over texts, and as they are shown."""

import pytest

from torchbake.core.digest import digest, short_digest


def test_no_two_lists_of_texts_have_one_digest() -> None:
    lists = [("a", "b"), ("ab",), ("a", "b", ""), ("", "ab"), ()]
    assert len({digest(one) for one in lists}) == len(lists)


@pytest.mark.parametrize(
    ("whole", "text"), [("sha256:" + "0123456789abcdef" * 4, "0123456789ab"), ("0123456789abcdef", "0123456789ab")]
)
def test_a_digest_is_shown_as_docker_shows_it(whole: str, text: str) -> None:
    assert short_digest(whole) == text
