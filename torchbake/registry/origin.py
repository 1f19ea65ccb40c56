"""What a secret is bound to: the scheme, host and port of a URL; and where an answer may lead from there. Pure."""

import re
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

_PORTS = {"http": 80, "https": 443}
# Nothing that two parsers could read in two ways: no backslash, no blank, no login before the host.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?([/?#][!-\[\]-~]*)?", re.A
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a URL is served. A login for one is nothing for any other."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"


def origin_of(url: str) -> Origin:
    """Raises ValueError for what is not a plain address of HTTP or HTTPS."""
    match = _URL.fullmatch(url)
    if not match or int(match["port"] or 1) not in range(1, 2**16):
        raise ValueError(f"{url[:200]!r} is not an address")
    scheme = match["scheme"]
    return Origin(scheme=scheme, host=match["host"].lower(), port=int(match["port"] or _PORTS[scheme]))


def led_to(url: str, location: str) -> str:
    """The address that an answer to ``url`` names. Raises ValueError: it is none, or is plain HTTP after HTTPS."""
    target = urljoin(url, location)
    if origin_of(target).scheme == "http" and origin_of(url).scheme == "https":
        raise ValueError(f"{target[:200]!r} is plain http, which anybody on the way can read and change")
    return target


def path_of(url: str, location: str) -> str:
    """Path and query of the address that an answer to ``url`` names, on whichever host. Raises ValueError."""
    parts = urlsplit(urljoin(url, location))
    path = "/" + parts.path.lstrip("/")
    path += f"?{parts.query}" if parts.query else ""
    origin_of(urljoin(url, path))
    return path


def may_log_in(registry: Origin, realm: Origin) -> bool:
    """Whether a registry's login may go to the place that it names for tokens.

    That place is often another host (auth.docker.io for registry-1.docker.io). Whoever names it could as well have
    asked for the login itself, so that naming another host gains nothing; reading along must not gain anything either.
    """
    return realm.scheme == "https" or (registry.scheme == "http" and realm.host == registry.host)
