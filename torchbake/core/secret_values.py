"""Texts that hold a secret, whatever they are called. Pure."""

import re

# An address with a name and a password in it. Of the scheme its end is enough: all of it took minutes in a long word.
ADDRESS = re.compile(rb"[a-z0-9+.-]://[^\s/@:\"'$<>{}]+:[^\s/@\"'$<>{}]+@")
# What services give out, by the prefix that they gave it so that it can be found. AWS ends the ids of its examples
# in EXAMPLE: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
TOKEN = re.compile(
    rb"(?<![A-Za-z0-9_-])(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{50}|glpat-[\w-]{20}|hf_[A-Za-z]{34}"
    rb"|xox[abpr]-[\w-]{20}|(?:AKIA|ASIA)(?![A-Z0-9]{9}EXAMPLE)[A-Z0-9]{16}|AIza[\w-]{35}|npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{40}"
    rb"|sk-(?:proj-|ant-)?[\w-]{40}|dckr_pat_[\w-]{20})(?![A-Za-z0-9_-])"
)


def secret_text(text: str) -> bool:
    """Whether a text holds a key, a token, or an address with a password."""
    data = text.encode()
    return bool(TOKEN.search(data) or ADDRESS.search(data) or b"PRIVATE KEY-----" in data)
