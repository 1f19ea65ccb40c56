"""The detection of texts that hold a secret."""

import pytest

from torchbake.core.secret_values import secret_text


def test_keys_tokens_and_addresses_with_passwords() -> None:
    for text, secret in (
        ("git+ssh://me:pass@example.com/x", True),
        ("a-very-long-scheme-of-more-than-31-signs+x://a:b@h", True),
        ("+x://a:b@h", True),
        ("see https://me:pass@example.com/x", True),
        ("https://example.com:443/x@1", False),
        ("https://example.com/me:pass@x", False),
        ("-----BEGIN PRIVATE KEY-----", True),
        ("AKIAIOSFODNN7EXAMPLE", False),
        ("hf_" + "a" * 34, True),
        ("", False),
    ):
        assert secret_text(text) is secret, (text, secret)


@pytest.mark.parametrize("text", ["a" * 2**21, "a:" * 2**20, "a://b" * 2**19, "a@" * 2**20], ids=lambda text: text[:5])
def test_a_long_text_is_read_in_moments(text: str) -> None:
    """With a step for each pair of its letters it would take hours."""
    assert not secret_text(text)
