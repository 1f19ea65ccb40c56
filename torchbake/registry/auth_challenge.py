"""How a registry asks for a login, and how it gives a token. Pure.

RFC 9110, section 11.6.1, and https://distribution.github.io/distribution/spec/auth/token/
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torchbake.core.json_text import read_object

# The name of a way to log in is followed by a blank and its parameters; a parameter's name by an equals sign.
_WAY = re.compile(r"(?:^|,\s*)(basic|bearer)(?=\s|,|$)", re.IGNORECASE)
_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s",]+))')
_TOKEN = re.compile(r"[!-~]+")  # what a header can hold


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """One way to log in. ``realm`` is where a bearer token is had."""

    way: Literal["basic", "bearer"]
    realm: str = ""
    service: str = ""
    scope: str = ""


def parse_challenge(header: str) -> Challenge | None:
    """What a WWW-Authenticate header asks for, a token before a password; None where it is nothing that we know."""
    begins = list(_WAY.finditer(header))
    ends = [*(match.start() for match in begins[1:]), len(header)]
    found = {match[1].lower(): header[match.end() : end] for match, end in zip(begins, ends, strict=False)}
    if "bearer" in found:
        said = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(found["bearer"])}
        return Challenge(
            way="bearer", realm=said.get("realm", ""), service=said.get("service", ""), scope=said.get("scope", "")
        )
    return Challenge(way="basic") if "basic" in found else None


@dataclass(frozen=True, kw_only=True)
class Token:
    """A bearer token, and the seconds for which it holds."""

    text: str
    life: float


def read_token(data: bytes) -> Token:
    """The token in an answer. Raises ValueError, with why there is none."""
    values: Mapping[str, object] = read_object(data)
    token = values.get("token") or values.get("access_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError("it holds no token")
    life = values.get("expires_in")
    # Not isinstance: true is an int too. Without a number it is a minute, by the specification.
    return Token(text=token, life=float(life) if type(life) is int and 0 < life < 2**31 else 60.0)
