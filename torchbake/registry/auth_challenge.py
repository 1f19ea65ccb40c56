"""Parsers of a registry's request for a login, and of its answer with a token.

RFC 9110, section 11.6.1, and https://distribution.github.io/distribution/spec/auth/token/
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torchbake.core.json_text import read_object

# After the name of a scheme come a blank and its parameters; after the name of a parameter an equals sign.
_WAY = re.compile(r"(?:^|,\s*)(basic|bearer)(?=\s|,|$)", re.IGNORECASE)
_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s",]+))')
_TOKEN = re.compile(r"[!-~]+")  # the characters of a header


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """A request for a login. ``realm`` is the URL that gives bearer tokens."""

    way: Literal["basic", "bearer"]
    realm: str = ""
    service: str = ""
    scope: str = ""


def parse_challenge(header: str) -> Challenge | None:
    """Parse a WWW-Authenticate header, a token before a password; None if it has no scheme that is known here."""
    begins = list(_WAY.finditer(header))
    ends = [*(match.start() for match in begins[1:]), len(header)]
    matches = {match[1].lower(): header[match.end() : end] for match, end in zip(begins, ends, strict=False)}
    if "bearer" in matches:
        values = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(matches["bearer"])}
        return Challenge(way="bearer", **{name: values.get(name, "") for name in ("realm", "service", "scope")})
    return Challenge(way="basic") if "basic" in matches else None


@dataclass(frozen=True, kw_only=True)
class Token:
    """A bearer token, and its life in seconds."""

    text: str
    life: float


def read_token(data: bytes) -> Token:
    """Read the token in an answer. Raises ValueError if there is no token."""
    values: Mapping[str, object] = read_object(data)
    token = values.get("token") or values.get("access_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError("it holds no token")
    life = values.get("expires_in")
    # Not isinstance: True is an int too. By the specification, a token without this number lives for a minute.
    return Token(text=token, life=float(life) if type(life) is int and 0 < life < 2**31 else 60.0)
