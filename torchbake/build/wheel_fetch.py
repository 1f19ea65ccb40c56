"""Find and fetch the archive of a locked wheel: in folders of this host, or from an index, by its hash."""

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

from torchbake.build.wheelhouse import Rank, find_wheel, rank_of
from torchbake.core.digest import file_digest
from torchbake.core.files import replacing
from torchbake.core.machine import host_platform
from torchbake.core.memory import spare_memory
from torchbake.errors import BuildError
from torchbake.hostconfig.http_session import (
    PATIENCE,
    index_pages,
    index_session,
    links_with_login,
    pieces_of_file,
    size_of_file,
)
from torchbake.hostconfig.index_page import hash_of
from torchbake.hostconfig.pip_config import PipConfig, without_login, without_logins
from torchbake.lock.lockfile import Pin
from torchbake.matrix.spec import AMD64
from torchbake.ui.command import Command
from torchbake.ui.steps import step

_PLENTY = 8  # times the size of an archive in memory: several archives, and the page cache, need memory too
_ANY_PYTHON = "3.11"
_ATTEMPTS = 3  # to fetch an archive; a second passes before the next


@dataclass(frozen=True, kw_only=True)
class WheelArchive:
    """A locked wheel's archive: a ``file`` of this host, or a ``url``.

    ``hashes`` are hashes of the lock: the archive's hash, or all possible hashes if its index gives none.
    """

    hashes: tuple[str, ...]
    file: Path | None = None
    url: str = ""

    @property
    def name(self) -> str:
        """The wheel's file name."""
        return self.file.name if self.file else unquote(urlsplit(self.url).path.rpartition("/")[2])


@dataclass(frozen=True, kw_only=True)
class FetchedArchive:
    """A local archive with a hash of the lock, its ``digest``. ``name`` is the wheel's file name."""

    name: str
    path: Path
    digest: str


def not_found(pin: Pin) -> BuildError:
    """Return the error for a wheel that no source has."""
    return BuildError(
        f"{pin.name} {pin.version}: no folder and no index of this host has a wheel with a hash of the lock.",
        hint=f"Make the index reachable ({Command('help', 'air-gapped')}), or build it here: a build keeps the files.",
    )


def find_archive(
    pin: Pin, pip: PipConfig, python: str, indexes: Iterable[str] = (), platform: str = AMD64
) -> WheelArchive | None:
    """Find the archive of a wheel that fits ``python`` and the platform, without fetching it; None if there is none.

    Sources are folders of this host, then pages of pip's find-links, of pip's indexes and of ``indexes``. Raises
    HostConfigError for a page that is too large.
    """
    source_archive = find_wheel(pin, pip.local_folders, python, platform)
    if source_archive:
        return WheelArchive(file=source_archive[0], hashes=(source_archive[1],))
    with index_session(pip) as session:
        archives = (
            best_archive(page, url, pin, python, platform) for page, url in index_pages(pin.name, pip, session, indexes)
        )
        return next(filter(None, archives), None)


@contextlib.contextmanager
def fetch_wheel(
    archive: WheelArchive,
    pip: PipConfig,
    target: Path,
    stopping: threading.Event,
    spare: Callable[[], int] = spare_memory,
) -> Iterator[FetchedArchive]:
    """Yield the archive as a file, which is fetched to ``target`` unless this host has it.

    It is read once and removed. So if there is enough memory, it is kept in memory, and ``target`` is a link to it.
    Raises BuildError if it cannot be fetched or has another hash, and KeyboardInterrupt once ``stopping`` is set.
    """
    with contextlib.ExitStack() as stack:

        def new_file(size: int) -> IO[bytes]:
            target.unlink(missing_ok=True)
            return stack.enter_context(_new_file(target, size, spare))

        if archive.file:  # the hash in an index's page may be the hash of an older file
            path, digest = archive.file, file_digest(archive.file)
        else:
            path, digest = target, _download(archive, pip, stopping, new_file)
        if digest not in archive.hashes:
            raise BuildError(
                f"{archive.name}: {without_login(archive.url) or archive.file} has another hash than the lock.",
                hint="An index may have damaged or replaced it. Name another index, or lock again with --upgrade.",
            )
        yield FetchedArchive(name=archive.name, path=path, digest=digest)


def _download(
    archive: WheelArchive, pip: PipConfig, stopping: threading.Event, new_file: Callable[[int], IO[bytes]]
) -> str:
    """Fetch an archive into a file of ``new_file``, which gets the expected size, and return its digest."""
    for attempt in range(_ATTEMPTS):
        stopping.wait(attempt)
        try:
            with index_session(pip) as session, session.get(archive.url, stream=True, timeout=PATIENCE) as answer:
                answer.raise_for_status()
                return _write(pieces_of_file(answer, archive.name), new_file(size_of_file(answer)), stopping)
        except (requests.RequestException, OSError) as error:
            reason = without_logins(str(error))
    raise BuildError(f"{archive.name} cannot be fetched: {reason}.")


def keep(pins: Iterable[Pin], pip: PipConfig, folder: Path, say: Callable[[str], None]) -> bool:
    """Fetch the wheels of programs, which fit every Python, into ``folder``, unless this host has them.

    Wheels that no index has are skipped. Return False if the folder cannot be read.
    """
    with contextlib.suppress(OSError, ValueError):
        folder.mkdir(parents=True, exist_ok=True)
        folders, platform = (*pip.local_folders, folder), host_platform()
        for pin in pins:
            if find_wheel(pin, folders, _ANY_PYTHON, platform) or not os.access(folder, os.W_OK):
                continue
            archive = find_archive(pin, pip, _ANY_PYTHON, platform=platform)
            if archive:
                say(f"fetching {pin.name} {pin.version} for the builders")
                with step(f"fetching {pin.name}"):
                    _keep(archive, pip, folder)
        return True
    return False


def _keep(archive: WheelArchive, pip: PipConfig, folder: Path) -> None:
    with (
        contextlib.suppress(BuildError),
        tempfile.TemporaryDirectory() as beside,
        fetch_wheel(archive, pip, Path(beside, archive.name), threading.Event()) as source_archive,
        replacing(folder / archive.name) as new,
    ):
        shutil.copyfile(source_archive.path, new)


def _new_file(target: Path, size: int, spare: Callable[[], int]) -> IO[bytes]:
    if not size or size * _PLENTY > spare() or not hasattr(os, "memfd_create"):
        return target.open("wb")
    file = os.fdopen(os.memfd_create(target.name), "wb")
    target.symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")  # valid while the file is open
    return file


def best_archive(page: str, own: str, pin: Pin, python: str, platform: str = AMD64) -> WheelArchive | None:
    """Return the archive of the best wheel to which a page of an index links; ``own`` is the URL of the page.

    Links with another hash than the pin's are skipped. Of equal wheels the first by URL is the best. None if no link
    fits.
    """
    fitting = sorted(_fitting(page, own, pin, python, platform), key=lambda one: one[1].url)
    return max(fitting, key=lambda one: (one[0], len(one[1].hashes) == 1))[1] if fitting else None


def _fitting(page: str, own: str, pin: Pin, python: str, platform: str) -> Iterator[tuple[Rank, WheelArchive]]:
    for address in links_with_login(page, own):
        rank, digest = rank_of(unquote(address.path.rpartition("/")[2]), pin, python, platform), hash_of(address)
        if rank is not None and (not digest or digest in pin.hashes):
            url = address._replace(fragment="").geturl()
            yield rank, WheelArchive(hashes=(digest,) if digest else pin.hashes, url=url)


def _write(pieces: Iterable[bytes], file: IO[bytes], stopping: threading.Event) -> str:
    digest = hashlib.sha256()
    for data in pieces:
        if stopping.is_set():
            raise KeyboardInterrupt
        digest.update(data)
        file.write(data)
    file.flush()
    return f"sha256:{digest.hexdigest()}"
