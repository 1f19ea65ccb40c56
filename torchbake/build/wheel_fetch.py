"""The archive of a locked wheel: a file of this host's, or fetched from one of its indexes by the hash."""

import contextlib
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

import requests

from torchbake.build.index_page import hash_of, links_of, read_page
from torchbake.build.wheelhouse import Rank, find_wheel, rank_of
from torchbake.core.digest import file_digest
from torchbake.core.files import replacing
from torchbake.core.memory import spare_memory
from torchbake.hostconfig.pip_config import PYPI, PipConfig, is_remote
from torchbake.lock.lockfile import Pin

_CHUNK = 2**20
_PLENTY = 8  # times what is kept in memory: several are, and files that are read again want to be there too
_ANY_PYTHON = "3.11"
_PATIENCE = (10, 60)  # seconds to connect, and between two bytes
_PAGE = {"Accept": "application/vnd.pypi.simple.v1+html, text/html;q=0.5"}


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A locked wheel's archive: a ``file`` of this host's, or at an address (``url``), with its hash in the lock."""

    digest: str
    file: Path | None = None
    url: str = ""

    @property
    def name(self) -> str:
        """The wheel's file name."""
        return self.file.name if self.file else unquote(urlsplit(self.url).path.rpartition("/")[2])


def find_archive(pin: Pin, pip: PipConfig, python: str, indexes: Iterable[str] = ()) -> Archive | None:
    """The archive of a wheel that fits ``python``, not fetched yet; None where nobody may have one.

    It is a file of a folder of this host's, or one that pip's indexes or else ``indexes`` name with its hash.
    Raises HostConfigError for a page of an index that is too large.
    """
    found = find_wheel(pin, pip.local_folders, python)
    if found:
        return Archive(file=found[0], digest=found[1])
    if pip.trusted_hosts:  # hosts without a certificate that holds are left to who knows their rules
        return None
    own = () if pip.no_index else (pip.index_url or PYPI, *pip.extra_index_urls)
    with _session(pip) as session:
        for index in filter(is_remote, (*own, *indexes)):
            with contextlib.suppress(requests.RequestException, OSError):
                address = f"{index.rstrip('/')}/{pin.name}/"
                with session.get(address, headers=_PAGE, timeout=_PATIENCE, stream=True) as answer:
                    answer.raise_for_status()
                    page = read_page(answer.iter_content(_CHUNK), address)
                if best := best_archive(page, answer.url, pin, python):
                    return best
    return None


@contextlib.contextmanager
def fetched(
    archive: Archive, pip: PipConfig, target: Path, stopping: threading.Event, spare: Callable[[], int] = spare_memory
) -> Iterator[Path | None]:
    """The archive as a file: this host's, or ``target``; None where what comes is something else.

    It is read once and goes, so it is kept in memory where there is plenty, and ``target`` is a link to it.
    Raises KeyboardInterrupt once ``stopping`` is set.
    """
    if archive.file:  # an index's page may say the hash of a file that was replaced since
        yield archive.file if file_digest(archive.file) == archive.digest else None
        return
    with contextlib.ExitStack() as kept:
        whole = False
        with (
            contextlib.suppress(requests.RequestException, OSError),
            _session(pip) as session,
            session.get(archive.url, stream=True, timeout=_PATIENCE) as answer,
        ):
            answer.raise_for_status()
            file = kept.enter_context(_new_file(target, int(answer.headers.get("Content-Length", 0)), spare))
            whole = _written(answer, file, stopping) == archive.digest
        yield target if whole else None


def keep(pins: Iterable[Pin], pip: PipConfig, folder: Path, say: Callable[[str], None]) -> bool:
    """Fetch into ``folder`` the wheels that neither it nor this host's folders have; not those that nobody offers.

    They are of programs, which fit every Python. Returns whether the folder can be read; who cannot does without.
    """
    with contextlib.suppress(OSError, ValueError):
        folder.mkdir(parents=True, exist_ok=True)
        for pin in pins:
            if find_wheel(pin, (*pip.local_folders, folder), _ANY_PYTHON) or not os.access(folder, os.W_OK):
                continue
            archive = find_archive(pin, pip, _ANY_PYTHON)
            if archive:
                say(f"fetching {pin.name} {pin.version} for the builders")
                _keep(archive, pip, folder)
        return True
    return False


def _keep(archive: Archive, pip: PipConfig, folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as beside,
        fetched(archive, pip, Path(beside, archive.name), threading.Event()) as file,
    ):
        if file:
            with replacing(folder / archive.name) as new:
                shutil.copyfile(file, new)


def _new_file(target: Path, size: int, spare: Callable[[], int]) -> IO[bytes]:
    if not size or size * _PLENTY > spare() or not hasattr(os, "memfd_create"):
        return target.open("wb")
    file = os.fdopen(os.memfd_create(target.name), "wb")
    target.symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")  # as long as it is open, for whoever this user starts
    return file


def _session(pip: PipConfig) -> requests.Session:
    session = requests.Session()
    session.verify = pip.cert or True
    session.proxies = {"http": pip.proxy, "https": pip.proxy} if pip.proxy else {}
    return session


def best_archive(page: str, own: str, pin: Pin, python: str) -> Archive | None:
    """The archive of the wheel that fits best, of those that a page of an index gives one of the pin's hashes.

    None where there is none, or two are as good.
    """
    fitting: dict[Rank, list[Archive]] = {}
    for rank, archive in _fitting(page, own, pin, python):
        fitting.setdefault(rank, []).append(archive)
    best = fitting[max(fitting)] if fitting else []
    return best[0] if len(best) == 1 else None


def _fitting(page: str, own: str, pin: Pin, python: str) -> Iterator[tuple[Rank, Archive]]:
    for address in links_of(page, own):
        rank, digest = rank_of(unquote(address.path.rpartition("/")[2]), pin, python), hash_of(address)
        if rank is not None and digest in pin.hashes:
            yield rank, Archive(digest=digest, url=address._replace(fragment="").geturl())


def _written(answer: requests.Response, file: IO[bytes], stopping: threading.Event) -> str:
    """The digest of what was written."""
    digest = hashlib.sha256()
    for data in answer.iter_content(_CHUNK):
        if stopping.is_set():
            raise KeyboardInterrupt
        digest.update(data)
        file.write(data)
    file.flush()
    return f"sha256:{digest.hexdigest()}"
