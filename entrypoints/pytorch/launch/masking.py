"""Hides passwords and tokens in a repository's URL and in git's messages before they are printed."""

import re
from urllib.parse import unquote

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_LEAST_SECRET = 3  # shorter secrets are hidden only within their URL, as they occur in many words
_LEAST_TOKEN = 8  # a user name of this length may be a token; `git` and `oauth2` are shorter
_HIDDEN = "***"


def mask(text: str, url: str = "") -> str:
    """Return the text without the secrets of ``url``, and without those of any other URL in it."""
    if url:
        text = text.replace(url, masked_url(url))
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _URL.sub(lambda match: masked_url(match[0]), text)


def masked_url(url: str) -> str:
    """Return a URL, or an address in ssh's form, without user, password and query."""
    scheme, separator, rest = url.partition("://")
    at = rest.rfind("@")
    if not separator:
        login, text, host = url.rpartition("@")
        return f"{_HIDDEN}@{host}" if text and ":" in login and login[0] not in "/." else url
    query = re.search(r"[?#]", rest)
    if query and query.start() < at:
        return f"{scheme}://{_HIDDEN}"  # either a password with `?`, or a query with `@`
    place = rest[at + 1 : query.start()] if query else rest[at + 1 :]
    return f"{scheme}://{place}{'?' + _HIDDEN if query else ''}"


def _secrets(url: str) -> set[str]:
    """Return the secret parts of a URL, as written and decoded."""
    scheme, separator, rest = url.partition("://")
    login, _, place = (rest if separator else url).rpartition("@")
    user, _, password = login.partition(":")
    values = re.split(r"[?#&=]", place)[1:]
    matches = {part for part in (login, password, *values) if len(part) >= _LEAST_SECRET and part != "git"}
    if len(user) >= _LEAST_TOKEN and scheme != "ssh":
        matches.add(user)
    if not separator and ":" not in login:
        return set()
    return matches | {unquote(part) for part in matches}
