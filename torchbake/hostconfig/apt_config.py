"""The host's own apt settings, its mirrors and proxies, and what of them a build is told."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_MIRROR = "http://deb.debian.org/debian"
_SECURITY = "http://deb.debian.org/debian-security"


@dataclass(frozen=True, kw_only=True)
class AptConfig:
    """Debian mirror URIs by archive (``debian``, ``debian-security``) and proxies by scheme."""

    mirror: str = ""
    security_mirror: str = ""
    http_proxy: str = ""
    https_proxy: str = ""


def read_apt_config(environ: Mapping[str, str] = os.environ, root: Path = Path("/etc/apt")) -> AptConfig:
    """The host's Debian mirrors and apt proxies; TORCHBAKE_APT_MIRROR and TORCHBAKE_APT_PROXY win."""
    # As apt does, without backups such as debian.sources.bak.
    text = _concatenated([root / "apt.conf", *_with_suffix(root / "apt.conf.d", "", ".conf")])
    uris = _source_uris([root / "sources.list", *_with_suffix(root / "sources.list.d", ".list", ".sources")])
    named = environ.get("TORCHBAKE_APT_MIRROR", "")
    mirror = named or _first(uris, "/debian")
    proxy = environ.get("TORCHBAKE_APT_PROXY", "")
    return AptConfig(
        mirror=mirror,
        security_mirror=(not named and _first(uris, "/debian-security"))
        or re.sub(r"/debian/?$", "/debian-security", mirror),
        http_proxy=proxy or _apt_value(text, "Acquire::http::Proxy"),
        https_proxy=proxy or _apt_value(text, "Acquire::https::Proxy"),
    )


def debian_sources(suite: str, apt: AptConfig | None = None) -> str:
    """``debian.sources`` of a suite with its updates: Debian's own mirrors, or the host's."""
    mirror, security = _mirrors(apt or AptConfig())
    return "".join(
        f"Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: main\nSigned-By: {DEBIAN_KEYS}\n\n"
        for uri, suites in ((mirror, f"{suite} {suite}-updates"), (security, f"{suite}-security"))
    )


def apt_conf(apt: AptConfig, *, ca: str | None) -> str:
    """The host's proxies and certificates as apt's configuration; empty when it has none."""
    lines = {"Acquire::http::Proxy": apt.http_proxy, "Acquire::https::Proxy": apt.https_proxy}
    lines["Acquire::https::CaInfo"] = ca or ""
    return "".join(f'{key} "{value}";\n' for key, value in lines.items() if value)


def one_line_sources(suite: str, apt: AptConfig) -> list[str]:
    mirror, security = _mirrors(apt)
    return [f"deb {mirror} {name} main" for name in (suite, f"{suite}-updates")] + [
        f"deb {security} {suite}-security main"
    ]


def _mirrors(apt: AptConfig) -> tuple[str, str]:
    return apt.mirror or _MIRROR, apt.security_mirror or _SECURITY


def _with_suffix(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in suffixes)


def _concatenated(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text(errors="replace") for path in paths if path.is_file() and os.access(path, os.R_OK))


def _apt_value(text: str, key: str) -> str:
    """``Key "value";`` with the last one winning. Nested blocks are not searched: apt writes proxies flat."""
    found = re.findall(rf'^\s*{re.escape(key)}\s+"([^"]*)"\s*;', text, flags=re.IGNORECASE | re.MULTILINE)
    return "" if not found or found[-1].upper() == "DIRECT" else found[-1]


def _source_uris(paths: Iterable[Path]) -> list[str]:
    lines = [line.strip() for line in _concatenated(paths).splitlines()]
    one_line = [re.sub(r"\[[^\]]*\]", "", line).split() for line in lines if line.startswith(("deb ", "deb\t"))]
    deb822 = [line.split(":", 1)[1].split() for line in lines if line.lower().startswith("uris:")]
    return [words[1] for words in one_line if len(words) > 1] + [uri for uris in deb822 for uri in uris]


def _first(uris: Iterable[str], ending: str) -> str:
    return next((uri for uri in uris if uri.rstrip("/").endswith(ending)), "")
