"""The host's pip settings: indexes, folders of wheels, certificates, proxies.

torchbake uses these settings while it locks, and hands them to builds as secrets and named contexts. So none of them
stays in an image. See docs/how-to/air-gapped.md.
"""

import configparser
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from torchbake.errors import HostConfigError
from torchbake.hostconfig.project_index import ProjectIndex
from torchbake.matrix.wheel_indexes import most_exact, read_indexes, variable

if TYPE_CHECKING:
    from torchbake.matrix.spec import ImageSpec, Spec

_LOGIN = re.compile(r"//[^/\s]*@")
_PIP_SECTIONS = ("global", "install")
_KEYS = ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "proxy", "no-index")
_NO_LOGIN = re.compile(r"index URL \((\S+)\) could not be queried due to a lack of valid authentication")  # uv's words
PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, kw_only=True)
class PipConfig:
    """pip's sources of packages. URLs and folders are as the host's settings have them; empty means pip's default.

    ``indexes`` are the host's indexes of single accelerators, by the name of their environment variable. The
    folder ``wheels`` has the matrix's own wheels, and may be missing. ``by_project`` has the indexes of each project,
    by its folder, with this host's logins.
    """

    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str = ""
    proxy: str = ""
    no_index: bool = False
    indexes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wheels: Path | None = None
    by_project: Mapping[str, tuple[ProjectIndex, ...]] = field(default_factory=dict)

    def for_image(self, spec: "Spec") -> "PipConfig":
        """Return the settings with the indexes of the image's project after the host's.

        The row's own indexes are not among them: builds ask those last.
        """
        project = getattr(spec, "project", None)
        return self.for_project(project.folder, getattr(spec, "indexes", ())) if project else self

    def for_project(self, folder: str, others: Iterable[str] = ()) -> "PipConfig":
        """Return the settings with the indexes of the project in a folder after the host's, without those of others."""
        if self.no_index:
            return self
        addresses = {*map(without_login, (PYPI, self.index_url, *self.extra_index_urls, *others))}
        urls = [each.url for each in self.by_project.get(folder, ())]
        more = [url for url in urls if without_login(url).rstrip("/") not in {each.rstrip("/") for each in addresses}]
        return replace(self, extra_index_urls=(*self.extra_index_urls, *more))

    def with_login(self, url: str) -> str:
        """Return an address with the login of the index on the same host, as pip uses it for links of the index."""
        parts = urlsplit(url)
        for index in (self.index_url, *self.extra_index_urls):
            login, at, _ = urlsplit(index).netloc.rpartition("@")
            if at and ProjectIndex(name="", url=index).serves(url):
                return parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}").geturl()
        return url

    def login_hint(self, url: str) -> str:
        """Return the next step after an index has refused an address."""
        indexes = (index for indexes in self.by_project.values() for index in indexes)
        names = next((index.variables for index in indexes if index.name and index.serves(url)), ())
        host = urlsplit(without_login(url)).netloc
        variables = f"Set {' and '.join(names)}, or write" if names else "Write"
        return f"{variables} the login of {host} into ~/.netrc, or into the address of the index in pip's settings."

    def refusal_hint(self, output: str) -> str:
        """Return the next step if uv's output names an index that refused for want of a login; else empty."""
        match = _NO_LOGIN.search(output)
        return self.login_hint(match[1]) if match else ""

    def instead(self, spec: "ImageSpec") -> tuple[str, ...]:
        """Return this host's indexes that replace those of the matrix for the image's accelerator.

        These are the matrix's own, with logins, if a project names one of them and this host has its login.
        """
        if not spec.indexes or (own := most_exact(spec.accelerator, self.indexes, variable)):
            return own if spec.indexes else ()
        of_project = self.by_project.get(spec.project.folder, ()) if spec.project else ()
        logins = {without_login(index.url).rstrip("/"): index.url for index in of_project}
        urls = tuple(logins.get(url.rstrip("/"), url) for url in spec.indexes)
        return urls if tuple(map(without_login, urls)) != urls else ()

    def with_indexes(self, urls: tuple[str, ...]) -> "PipConfig":
        """Add indexes after all others: if several indexes have a version, uv takes it from the first of them."""
        *first, last = urls
        return replace(self, index_url=last, extra_index_urls=(*self.extra_index_urls, self.index_url or PYPI, *first))

    @property
    def local_folders(self) -> tuple[Path, ...]:
        """The existing folders among this host's find-links and ``file:`` indexes, and the matrix's own wheels."""
        places = (self.index_url, *self.extra_index_urls, *self.find_links)
        folders = (*(local_folder(place) for place in places if place), self.wheels)
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


def without_logins(text: str) -> str:
    """Return a message without the user names and passwords of the addresses in it."""
    return _LOGIN.sub("//", text)


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
