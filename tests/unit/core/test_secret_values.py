"""The detection of texts that hold a secret."""

import pytest

from torchbake.core.secret_values import MASK, masked, secret_text


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


@pytest.mark.parametrize("text", ["a" * 2**18, "a:" * 2**17, "a://b" * 2**16, "a@" * 2**17], ids=lambda text: text[:5])
def test_a_long_text_is_read_in_moments(text: str) -> None:
    """With a step for each pair of its letters it would take minutes."""
    assert not secret_text(text)


def test_a_text_for_people_has_no_secret() -> None:
    for text, name, expected in (
        ("abc", "HF_TOKEN", MASK),
        ("/usr/bin", "PATH", "/usr/bin"),
        ("RUN |1 HF_TOKEN=abc pip install --token abc x", "", f"RUN |1 HF_TOKEN={MASK} pip install --token {MASK} x"),
        ('["app", "--token", "abc", "--name", "x"]', "Cmd", f'["app", "--token", {MASK}, "--name", "x"]'),
        ('ENV API_KEY="abc def" A=b', "", f"ENV API_KEY={MASK} A=b"),
        ("--api-key=abc --keys=abc", "", f"--api-key={MASK} --keys=abc"),
        ("https://me:pass@example.com/x", "INDEX_URL", f"{MASK}example.com/x"),
        ("use hf_" + "a" * 34, "", f"use {MASK}"),
        ("-----BEGIN PRIVATE KEY-----", "CERT", MASK),
    ):
        assert masked(text, name=name) == expected
