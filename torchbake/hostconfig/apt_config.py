"""The host's apt settings: its mirrors and proxies, and the apt configuration that a build gets from them."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchbake.core.plain_text import last_line
from torchbake.core.tool_variables import inherited_variables
from torchbake.errors import HostConfigError

_HTTP, _HTTPS = "Acquire::http::Proxy", "Acquire::https::Proxy"
# One setting per line, for all hosts or (after another ::) for one host.
_PROXY = re.compile(r'^\s*(Acquire::https?::Proxy(?:::[^\s"]*[^\s":])?)\s+"([^"]*)"\s*;', re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class AptConfig:
    """URIs of the mirrors of Debian, of its security updates and of Ubuntu, and apt's proxy settings.

    ``proxies`` are keys and values as apt writes them. A key may name one host (``Acquire::http::Proxy::HOST``), and a
    value may be DIRECT.
    """

    mirror: str = ""
    security_mirror: str = ""
    ubuntu_mirror: str = ""
    proxies: tuple[tuple[str, str], ...] = ()


def dumped_by_apt(environ: Mapping[str, str]) -> str:
    """Return the output of `apt-config dump`; "" if apt is missing. Raises HostConfigError with apt's message."""
    command = shutil.which("apt-config", path=environ.get("PATH"))
    if command is None:
        return ""
    env = inherited_variables("apt", environ)
    process = subprocess.run([command, "dump"], env=env, capture_output=True, text=True, errors="replace", check=False)
    if process.returncode:
        raise HostConfigError(
            f"apt-config dump fails: {last_line(process.stderr)}",
            hint="Correct that file of apt's settings; or name the proxy for builds by TORCHBAKE_APT_PROXY.",
        )
    return process.stdout


def read_apt_config(
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/etc/apt"),
    dump: Callable[[Mapping[str, str]], str] = dumped_by_apt,
) -> AptConfig:
    """Read the host's mirrors and proxies. TORCHBAKE_APT_MIRROR, ..._MIRROR_UBUNTU and TORCHBAKE_APT_PROXY win.

    Proxies come from ``dump``, which starts a process. If it returns nothing, flat settings are read from apt's files.
    Raises the HostConfigError of ``dump``.
    """
    # As apt does, without backups such as debian.sources.bak.
    uris = _source_uris([root / "sources.list", *_with_suffix(root / "sources.list.d", ".list", ".sources")])
    choice = environ.get("TORCHBAKE_APT_MIRROR", "")
    mirror = choice or _first(uris, "/debian")
    proxy = environ.get("TORCHBAKE_APT_PROXY", "")
    proxies: tuple[tuple[str, str], ...] = ((_HTTP, proxy), (_HTTPS, proxy))
    if not proxy:
        text = dump(environ) or _concatenate([root / "apt.conf", *_with_suffix(root / "apt.conf.d", "", ".conf")])
        # The last value of a key counts, and an empty value removes the key.
        last = {key.lower(): (key, value) for key, value in _PROXY.findall(text)}
        proxies = tuple((key, value) for key, value in last.values() if value)
    security = "" if choice else _first(uris, "/debian-security")
    return AptConfig(
        mirror=mirror,
        security_mirror=security or re.sub(r"/debian/?$", "/debian-security", mirror),
        ubuntu_mirror=environ.get("TORCHBAKE_APT_MIRROR_UBUNTU", "") or _first(uris, "/ubuntu"),
        proxies=proxies,
    )


def apt_conf(apt: AptConfig, *, ca: str | None) -> str:
    """Return the host's proxies and the certificates ``ca`` as apt's configuration; "" if the host has neither."""
    settings = [*apt.proxies, *([("Acquire::https::CaInfo", ca)] if ca else [])]
    return "".join(f'{key} "{value}";\n' for key, value in settings)


def _with_suffix(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in suffixes)


def _concatenate(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text(errors="replace") for path in paths if path.is_file() and os.access(path, os.R_OK))


def _source_uris(paths: Iterable[Path]) -> list[str]:
    lines = [line.strip() for line in _concatenate(paths).splitlines()]
    one_line = [re.sub(r"\[[^\]]*\]", "", line).split() for line in lines if line.startswith(("deb ", "deb\t"))]
    deb822 = [line.split(":", 1)[1].split() for line in lines if line.lower().startswith("uris:")]
    return [words[1] for words in one_line if len(words) > 1] + [uri for uris in deb822 for uri in uris]


def _first(uris: Iterable[str], ending: str) -> str:
    return next((uri for uri in uris if uri.rstrip("/").endswith(ending)), "")
