"""The host's own apt settings, its mirrors and proxies, and what of them a build is told."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchbake.core.inherited import inherited

_HTTP, _HTTPS = "Acquire::http::Proxy", "Acquire::https::Proxy"
# One setting a line, of all hosts or (behind another ::) of one.
_PROXY = re.compile(r'^\s*(Acquire::https?::Proxy(?:::[^\s"]*[^\s":])?)\s+"([^"]*)"\s*;', re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class AptConfig:
    """Debian mirror URIs by archive (``debian``, ``debian-security``), Ubuntu's mirror, and apt's settings of proxies.

    ``proxies`` are keys and values as apt writes them, those of single hosts (``Acquire::http::Proxy::HOST``) and the
    value DIRECT among them.
    """

    mirror: str = ""
    security_mirror: str = ""
    ubuntu_mirror: str = ""
    proxies: tuple[tuple[str, str], ...] = ()


def dumped_by_apt(environ: Mapping[str, str]) -> str:
    """apt's whole configuration as apt understands it, a setting a line; "" where apt is missing or refuses."""
    command = shutil.which("apt-config", path=environ.get("PATH"))
    if command is None:
        return ""
    env = inherited("apt", environ)
    done = subprocess.run([command, "dump"], env=env, capture_output=True, text=True, errors="replace", check=False)
    return "" if done.returncode else done.stdout


def read_apt_config(
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/etc/apt"),
    dump: Callable[[Mapping[str, str]], str] = dumped_by_apt,
) -> AptConfig:
    """The host's mirrors and apt proxies; TORCHBAKE_APT_MIRROR, ..._MIRROR_UBUNTU and TORCHBAKE_APT_PROXY win.

    It asks apt, a process; where that has no answer, flat settings are read from its files.
    """
    # As apt does, without backups such as debian.sources.bak.
    uris = _source_uris([root / "sources.list", *_with_suffix(root / "sources.list.d", ".list", ".sources")])
    named = environ.get("TORCHBAKE_APT_MIRROR", "")
    mirror = named or _first(uris, "/debian")
    proxy = environ.get("TORCHBAKE_APT_PROXY", "")
    return AptConfig(
        mirror=mirror,
        security_mirror=(not named and _first(uris, "/debian-security"))
        or re.sub(r"/debian/?$", "/debian-security", mirror),
        ubuntu_mirror=environ.get("TORCHBAKE_APT_MIRROR_UBUNTU", "") or _first(uris, "/ubuntu"),
        proxies=((_HTTP, proxy), (_HTTPS, proxy)) if proxy else _proxies(dump(environ) or _files(root)),
    )


def apt_conf(apt: AptConfig, *, ca: str | None) -> str:
    """The host's proxies and certificates as apt's configuration; empty when it has none."""
    settings = [*apt.proxies, *([("Acquire::https::CaInfo", ca)] if ca else [])]
    return "".join(f'{key} "{value}";\n' for key, value in settings)


def _with_suffix(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in suffixes)


def _concatenated(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text(errors="replace") for path in paths if path.is_file() and os.access(path, os.R_OK))


def _files(root: Path) -> str:
    return _concatenated([root / "apt.conf", *_with_suffix(root / "apt.conf.d", "", ".conf")])


def _proxies(text: str) -> tuple[tuple[str, str], ...]:
    """``Key "value";`` of proxies, one a line: of one key the last wins, and an empty value takes it back."""
    last = {key.lower(): (key, value) for key, value in _PROXY.findall(text)}
    return tuple((key, value) for key, value in last.values() if value)


def _source_uris(paths: Iterable[Path]) -> list[str]:
    lines = [line.strip() for line in _concatenated(paths).splitlines()]
    one_line = [re.sub(r"\[[^\]]*\]", "", line).split() for line in lines if line.startswith(("deb ", "deb\t"))]
    deb822 = [line.split(":", 1)[1].split() for line in lines if line.lower().startswith("uris:")]
    return [words[1] for words in one_line if len(words) > 1] + [uri for uris in deb822 for uri in uris]


def _first(uris: Iterable[str], ending: str) -> str:
    return next((uri for uri in uris if uri.rstrip("/").endswith(ending)), "")
