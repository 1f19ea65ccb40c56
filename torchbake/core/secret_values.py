"""Find secrets in texts by their form. Pure."""

import re

from torchbake.core.secret_names import looks_secret

# A URL with a user and a password. The limit of the scheme keeps the search of a long text linear.
ADDRESS = re.compile(rb"[a-z][a-z0-9+.-]{0,30}://[^\s/@:\"'$<>{}]+:[^\s/@\"'$<>{}]+@")
# Tokens with the prefixes that services give them so that scanners find them. AWS ends the IDs of its examples in
# EXAMPLE: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
TOKEN = re.compile(
    rb"(?<![A-Za-z0-9_-])(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{50}|glpat-[\w-]{20}|hf_[A-Za-z]{34}"
    rb"|xox[abpr]-[\w-]{20}|(?:AKIA|ASIA)(?![A-Z0-9]{9}EXAMPLE)[A-Z0-9]{16}|AIza[\w-]{35}|npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{40}"
    rb"|sk-(?:proj-|ant-)?[\w-]{40}|dckr_pat_[\w-]{20})(?![A-Za-z0-9_-])"
)
MASK = "***"
# A variable or an option with its value: HF_TOKEN=abc, --token=abc, --token abc, and "--token", "abc" in JSON.
_SETTING = re.compile(r"""(--([A-Za-z][\w-]*)(?:=|["']?,?\s+)|\b([A-Za-z_]\w*)=)("[^"]*"|'[^']*'|[^\s"',\]]+)""")


def secret_text(text: str) -> bool:
    """Return whether a text contains a private key, a token, or a URL with a password."""
    data = text.encode()
    return bool(TOKEN.search(data) or ADDRESS.search(data) or b"PRIVATE KEY-----" in data)


def masked(text: str, *, name: str) -> str:
    """Return a text for people without its secrets: all of it if ``name`` names a secret, else only values in it."""
    if _names_secret(name):
        return MASK
    for pattern in (TOKEN, ADDRESS):
        text = pattern.sub(MASK.encode(), text.encode()).decode()
    if "PRIVATE KEY-----" in text:
        return MASK
    return _SETTING.sub(_mask_setting, text)


def _mask_setting(match: re.Match[str]) -> str:
    return f"{match[1]}{MASK}" if _names_secret(match[2] or match[3]) else match[0]


def _names_secret(name: str) -> bool:
    """Return whether a variable, an option or a label names a secret: ``HF_TOKEN``, ``api-key``, ``db.password``."""
    return looks_secret(re.sub(r"[^A-Za-z0-9]", "_", name))
