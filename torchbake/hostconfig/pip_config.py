"""The host's pip settings: indexes, folders of wheels, certificates, proxies.

torchbake uses these settings while it locks, and hands them to builds as secrets and named contexts. So none of them
stays in an image. See docs/air-gapped.md.
"""

import configparser
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from torchbake.errors import HostConfigError
from torchbake.matrix.wheel_indexes import most_exact, read_indexes, variable

if TYPE_CHECKING:
    from torchbake.matrix.spec import ImageSpec

_PIP_SECTIONS = ("global", "install")
_KEYS = ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "proxy", "no-index")
PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, kw_only=True)
class PipConfig:
    """pip's sources of packages. URLs and folders are as the host's settings have them; empty means pip's default.

    ``indexes`` are the host's indexes of single accelerators, by the name of their environment variable.
    """

    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str = ""
    proxy: str = ""
    no_index: bool = False
    indexes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def instead(self, spec: "ImageSpec") -> tuple[str, ...]:
        """Return this host's indexes that replace those of the matrix for the image's accelerator."""
        return most_exact(spec.accelerator, self.indexes, variable) if spec.indexes else ()

    def with_indexes(self, urls: tuple[str, ...]) -> "PipConfig":
        """Add indexes after all others: if several indexes have a version, uv takes it from the first of them."""
        *first, last = urls
        return replace(self, index_url=last, extra_index_urls=(*self.extra_index_urls, self.index_url or PYPI, *first))

    @property
    def local_folders(self) -> tuple[Path, ...]:
        """The existing folders among this host's find-links and ``file:`` indexes."""
        places = (self.index_url, *self.extra_index_urls, *self.find_links)
        folders = (local_folder(place) for place in places if place)
        return tuple(folder for folder in folders if folder and folder.is_dir())


def read_pip_config(environ: Mapping[str, str] = os.environ, etc: Path = Path("/etc")) -> PipConfig:
    """Read pip's files, then its environment variables, as pip does.

    Raises HostConfigError if a file cannot be parsed.
    """
    values: dict[str, str] = {}
    if environ.get("PIP_CONFIG_FILE") != os.devnull:
        files = [_pip_file(path) for path in _pip_files(environ, etc)]
        for section in _PIP_SECTIONS:  # pip's order: [install] of any file before [global] of every file
            for file in files:
                values |= file.get(section, {})
    for key in _KEYS:
        variable = "PIP_" + key.upper().replace("-", "_")
        if environ.get(variable):  # pip ignores empty variables
            values[key] = environ[variable]
    return PipConfig(
        index_url=values.get("index-url", ""),
        extra_index_urls=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        cert=values.get("cert") or environ.get("SSL_CERT_FILE", "") or environ.get("REQUESTS_CA_BUNDLE", ""),
        proxy=values.get("proxy", ""),
        no_index=values.get("no-index", "").lower() in ("1", "true", "yes", "on"),
        indexes=read_indexes(environ),
    )


def local_folder(place: str) -> Path | None:
    """Return the folder of a path or a ``file:`` URL; None for a remote address."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in place else Path(place).expanduser()


def without_login(url: str) -> str:
    """Return an address without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def is_remote(place: str) -> bool:
    return local_folder(place) is None


def _pip_files(environ: Mapping[str, str], etc: Path) -> Iterable[Path]:
    home = Path(environ.get("HOME", "/"))
    shared = (environ.get("XDG_CONFIG_DIRS") or str(etc / "xdg")).split(":")
    yield from (Path(folder) / "pip/pip.conf" for folder in shared)
    yield etc / "pip.conf"
    name = environ.get("PIP_CONFIG_FILE")
    if name and Path(name).exists():  # replaces the user's files, as in pip
        yield Path(name)
        return
    yield home / ".pip/pip.conf"
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"


def _pip_file(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except (configparser.Error, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise HostConfigError(f"{path}: {reason}", hint="pip cannot read this file either; correct it.") from None
    return {
        section: {key.replace("_", "-"): value for key, value in parser.items(section)} for section in parser.sections()
    }
