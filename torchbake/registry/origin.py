"""Origins of URLs: a login is bound to an origin, and an answer may lead only to some other origins."""

import re
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

_PORTS = {"http": 80, "https": 443}
# No URL that two parsers could read differently: no backslash, no blank, no login before the host.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?([/?#][!-\[\]-~]*)?", re.A
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The server of a URL. A login for one origin is never sent to another one."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"


def origin_of(url: str) -> Origin:
    """Parse a URL. Raises ValueError if it is not a plain address of HTTP or HTTPS."""
    match = _URL.fullmatch(url)
    if not match or int(match["port"] or 1) not in range(1, 2**16):
        raise ValueError(f"{url[:200]!r} is not an address")
    scheme = match["scheme"]
    return Origin(scheme=scheme, host=match["host"].lower(), port=int(match["port"] or _PORTS[scheme]))


def led_to(url: str, location: str) -> str:
    """Return the address that an answer to ``url`` names. Raises ValueError if it is invalid, or HTTP after HTTPS."""
    target = urljoin(url, location)
    if origin_of(target).scheme == "http" and origin_of(url).scheme == "https":
        raise ValueError(f"{target[:200]!r} is plain http, which anybody on the way can read and change")
    return target


def path_of(url: str, location: str) -> str:
    """Return path and query of the address that an answer to ``url`` names. Raises ValueError if it is invalid."""
    parts = urlsplit(urljoin(url, location))
    path = "/" + parts.path.lstrip("/")
    path += f"?{parts.query}" if parts.query else ""
    origin_of(urljoin(url, path))
    return path


def may_log_in(registry: Origin, realm: Origin) -> bool:
    """Check if a registry's login may be sent to the origin that the registry names for tokens.

    This is often another host (auth.docker.io for registry-1.docker.io). A registry that names a hostile host gains
    nothing, as it could have asked for the login itself. Somebody who reads the network must not gain it either.
    """
    return realm.scheme == "https" or (registry.scheme == "http" and realm.host == registry.host)
