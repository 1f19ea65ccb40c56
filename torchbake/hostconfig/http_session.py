"""HTTP for package indexes by the host's pip settings: certificates, proxy, trusted hosts; and pages of indexes."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import SplitResult, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from torchbake.core.sizes import human
from torchbake.errors import HostConfigError
from torchbake.hostconfig.index_page import links_of, read_page
from torchbake.hostconfig.pip_config import PYPI, PipConfig, is_remote, without_login

CHUNK = 2**20  # bytes of an answer that are read at once
PATIENCE = (10, 60)  # seconds to connect, and between two bytes
REFUSED = (401, 403)  # the status codes of an index that wants a login, or another one
LARGEST_FILE = 16 * 2**30  # bytes; the largest wheels of torch and of NVIDIA have one or two billion
_HTML = "application/vnd.pypi.simple.v1+html, text/html;q=0.5"


class _UnverifiedAdapter(HTTPAdapter):
    """An adapter for pip's `trusted-host`: certificates are not checked."""

    def send(self, request: requests.PreparedRequest, *args: Any, **words: Any) -> requests.Response:
        return super().send(request, *args, **{**words, "verify": False})


def index_session(pip: PipConfig) -> requests.Session:
    """Return a session with pip's certificates, proxy and trusted hosts."""
    session = requests.Session()
    session.verify = pip.cert or True
    session.proxies = {"http": pip.proxy, "https": pip.proxy} if pip.proxy else {}
    for host in pip.trusted_hosts:  # a host without a port is trusted on all
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        for end in ("/",) if urlsplit(f"//{host}").port else ("/", ":"):
            session.mount(f"https://{host}{end}", _UnverifiedAdapter())
    return session


def index_pages(
    name: str, pip: PipConfig, session: requests.Session, indexes: Iterable[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the text and the URL of each page that may link to files of a package.

    Pages are those of pip's find-links, of pip's indexes and of ``indexes``; pages without an answer are skipped.
    Raises HostConfigError for a page that is too large.
    """
    for address in page_addresses(name, pip, indexes):
        with contextlib.suppress(requests.RequestException, OSError):
            yield fetch_page(address, session)


def page_addresses(name: str, pip: PipConfig, indexes: Iterable[str] = ()) -> list[str]:
    """Return the addresses of the pages that `index_pages` yields."""
    places = () if pip.no_index else (pip.index_url or PYPI, *pip.extra_index_urls, *indexes)
    pages = (f"{url.rstrip('/')}/{name}/" for url in filter(is_remote, places))
    return [*filter(is_remote, pip.find_links), *pages]


def fetch_page(
    address: str, session: requests.Session, patience: tuple[float, float] = PATIENCE, accept: str = _HTML
) -> tuple[str, str]:
    """Return the text and the URL of a page.

    The ``patience`` are seconds to connect, and between two bytes. Raises RequestException or OSError, and
    HostConfigError for a page that is too large.
    """
    with session.get(address, headers={"Accept": accept}, timeout=patience, stream=True) as answer:
        answer.raise_for_status()
        return read_page(answer.iter_content(CHUNK), without_login(address)), answer.url


def size_of_file(answer: requests.Response) -> int:
    """Return the bytes of a file that an index serves; 0 if that is not known, as of a file that it has compressed."""
    length = answer.headers.get("Content-Length", "")
    plain = answer.headers.get("Content-Encoding", "identity") == "identity"
    return int(length) if plain and re.fullmatch(r"[0-9]{1,18}", length) else 0


def pieces_of_file(answer: requests.Response, place: str) -> Iterator[bytes]:
    """Yield the pieces of a file that an index serves. Raises RequestException, and HostConfigError if it is endless.

    The answer may be compressed, so its length is no limit.
    """
    size = 0
    for data in answer.iter_content(CHUNK):
        size += len(data)
        if size > LARGEST_FILE:
            raise HostConfigError(
                f"{place}: this file of a package index has more than {human(LARGEST_FILE)}.",
                hint="Correct the index, or the setting that names it: `pip config list`.",
            )
        yield data


def links_with_login(page: str, own: str) -> Iterator[SplitResult]:
    """Yield the links of a page. As in pip, the login in the page's URL, ``own``, is used for all links to its host."""
    index = urlsplit(own)
    for address in links_of(page, own):
        same = (address.scheme, address.netloc) == (index.scheme, index.netloc.rpartition("@")[2])
        yield address._replace(netloc=index.netloc) if same else address
