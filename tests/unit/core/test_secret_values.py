"""Texts that hold a secret are found, and others are passed soon."""

import time

import pytest

from torchbake.core.secret_values import secret_text


@pytest.mark.parametrize(
    "text", ["pg://ann:hunter2@h/x", "a-very-long-scheme-of-more-than-31-signs+x://a:b@h", "+x://a:b@h"]
)
def test_a_password_in_an_address_is_found_whatever_its_scheme(text: str) -> None:
    assert secret_text(text)


def test_a_long_word_is_read_in_one_go() -> None:
    begun = time.monotonic()
    assert not secret_text("x" * 300_000)
    assert time.monotonic() - begun < 5
