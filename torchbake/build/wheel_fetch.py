"""The archive of a locked wheel: a file of this host's, or fetched from one of its indexes by the hash."""

import hashlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import requests

from torchbake.build.index_page import hash_of, links_of
from torchbake.build.wheelhouse import find_wheel, place_of
from torchbake.hostconfig.pip_config import PYPI, PipConfig, is_remote
from torchbake.lock.lockfile import Pin

_CHUNK = 2**20
_PATIENCE = (10, 60)  # seconds to connect, and between two bytes
_PAGE = {"Accept": "application/vnd.pypi.simple.v1+html, text/html;q=0.5"}


def fetch_wheel(
    pin: Pin, pip: PipConfig, python: str, target: Path, *, stopping: threading.Event, indexes: Iterable[str] = ()
) -> Path | None:
    """A wheel of the pin's hash that fits ``python``; None where it is none that anybody may fetch, or cannot be had.

    It is a file of a folder of this host's, or written to ``target`` from pip's indexes or else ``indexes``. Raises
    KeyboardInterrupt once ``stopping`` is set.
    """
    found = find_wheel(pin, pip.local_folders, python)
    if found or pip.trusted_hosts:  # hosts without a certificate that holds are left to who knows their rules
        return found
    own = () if pip.no_index else (pip.index_url or PYPI, *pip.extra_index_urls)
    with requests.Session() as session:
        session.verify = pip.cert or True
        session.proxies = {"http": pip.proxy, "https": pip.proxy} if pip.proxy else {}
        for index in filter(is_remote, (*own, *indexes)):
            try:
                address = _address(session, index, pin, python)
                if address and _fetched(session, address, target, stopping) in pin.hashes:
                    return target
            except (requests.RequestException, OSError):
                continue
    return None


def _address(session: requests.Session, index: str, pin: Pin, python: str) -> str:
    answer = session.get(f"{index.rstrip('/')}/{pin.name}/", headers=_PAGE, timeout=_PATIENCE)
    answer.raise_for_status()
    return best_address(answer.text, answer.url, pin, python)


def best_address(page: str, own: str, pin: Pin, python: str) -> str:
    """The address of the wheel that fits best, of those that a page of an index gives one of the pin's hashes.

    Empty where there is none, or two are as good.
    """
    fitting: dict[int, list[str]] = {}
    for place, url in _fitting(page, own, pin, python):
        fitting.setdefault(place, []).append(url)
    best = fitting[min(fitting)] if fitting else []
    return best[0] if len(best) == 1 else ""


def _fitting(page: str, own: str, pin: Pin, python: str) -> Iterator[tuple[int, str]]:
    for address in links_of(page, own):
        place = place_of(unquote(address.path.rpartition("/")[2]), pin, python)
        if place is not None and hash_of(address) in pin.hashes:
            yield place, address._replace(fragment="").geturl()


def _fetched(session: requests.Session, url: str, target: Path, stopping: threading.Event) -> str:
    """The digest of what was written."""
    digest = hashlib.sha256()
    with session.get(url, stream=True, timeout=_PATIENCE) as answer, target.open("wb") as file:
        answer.raise_for_status()
        for data in answer.iter_content(_CHUNK):
            if stopping.is_set():
                raise KeyboardInterrupt
            digest.update(data)
            file.write(data)
    return f"sha256:{digest.hexdigest()}"
