"""Reading of advisories: files, folders, zips, and addresses of them. The content tells the format of each file."""

import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

import requests
import urllib3

from torchbake.advisories.advisory import Advisory, AdvisoryFormError
from torchbake.advisories.match import Feeds, feeds_of
from torchbake.advisories.osv import is_osv, osv_advisories
from torchbake.advisories.tracker import is_tracker, tracker_advisories, tracker_releases
from torchbake.core.json_text import NotJsonError, read_json
from torchbake.core.paths import path_of
from torchbake.core.sizes import human
from torchbake.errors import AdvisoryError
from torchbake.hostconfig.http_session import CHUNK, PATIENCE, index_session
from torchbake.hostconfig.pip_config import read_pip_config, without_login, without_logins

TRACKER_URL = "https://security-tracker.debian.org/tracker/data/json"
OSV_URL = "https://storage.googleapis.com/osv-vulnerabilities/PyPI/all.zip"
LARGEST_FILE = 2**30  # bytes; the tracker's data has about 60 MB, and OSV's zip of PyPI 30 MB
_LARGEST_ZIP = 2**34  # bytes of all files in a zip, unpacked
_HINT = f"Give Debian's tracker data ({TRACKER_URL}), or OSV's records ({OSV_URL}): a file, a zip or a folder."


def read_feeds(places: Sequence[str]) -> Feeds:
    """Read the advisories of files, folders and http addresses. Raises AdvisoryError, which names the file."""
    advisories, distributions = list[Advisory](), set[str]()
    for place in places:
        for where, value in _documents(place):
            try:
                if is_osv(value):
                    advisories += osv_advisories(value, place_name(place))
                elif is_tracker(value):
                    advisories += tracker_advisories(value, place_name(place))
                    distributions |= tracker_releases(value)
                else:
                    raise AdvisoryFormError("it is neither the data of Debian's security tracker nor a record of OSV")
            except AdvisoryFormError as error:
                raise AdvisoryError(f"{where}: {error}.", hint=_HINT) from None
    return feeds_of(advisories, distributions)


def place_name(place: str) -> str:
    """Return a place as results name it: without a login."""
    return without_login(place) if is_address(place) else place


def is_address(place: str) -> bool:
    return place.lower().startswith(("http://", "https://"))


def _documents(place: str) -> Iterator[tuple[str, Any]]:
    """Yield the JSON values of a place, with the place of each. A list of records yields each record."""
    for where, data in _files(place):
        try:
            value = read_json(data)
        except NotJsonError as error:
            raise AdvisoryError(f"{where}: {error}.", hint=_HINT) from None
        if isinstance(value, list):
            if not value:
                raise AdvisoryError(f"{where}: it is an empty list.", hint=_HINT)
            yield from ((f"{where}, entry {number}", one) for number, one in enumerate(value))
        else:
            yield where, value


def _files(place: str) -> Iterator[tuple[str, bytes]]:
    """Yield the content of each JSON file of a place. Raises AdvisoryError, also if there is none."""
    _check_place(place)
    if is_address(place):
        with tempfile.TemporaryFile(prefix="torchbake-advisories-") as file:
            _download(place, file)
            yield from _content(without_login(place), file)
        return
    path = path_of(place)
    try:
        paths = [path] if not path.is_dir() else sorted(_advisory_files(path))
        if not paths:
            raise AdvisoryError(f"{path}: the folder has no file .json and no .zip.", hint=_HINT)
        for each in paths:
            if each.exists() and not each.is_file():
                raise AdvisoryError(f"{each}: it is neither a file nor a folder.", hint=_HINT)
            with each.open("rb") as file:
                yield from _content(str(each), file)
    except OSError as error:
        raise AdvisoryError(f"{error.filename or path}: {error.strerror}.", hint=_HINT) from None


def _check_place(place: str) -> None:
    """Raise AdvisoryError for text that can be neither an address nor the name of a file."""
    try:
        if "\0" in place:
            raise ValueError("it has a null character")
        if is_address(place):
            urlsplit(place)
    except ValueError as error:
        raise AdvisoryError(f"{without_logins(place)!r} names no place: {error}.", hint=_HINT) from None


def _advisory_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in (".json", ".zip") and path.is_file())


def _content(where: str, file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the content of a file, or of each JSON file in a zip."""
    size = file.seek(0, 2)
    file.seek(0)
    _check_size(where, size)
    if not zipfile.is_zipfile(file):
        file.seek(0)
        yield where, file.read()
        return
    try:
        yield from _members(where, file)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        raise AdvisoryError(f"{where}: the zip cannot be read: {error}.", hint="Fetch it again.") from None


def _check_size(where: str, size: int) -> None:
    if size > LARGEST_FILE:
        raise AdvisoryError(f"{where}: it has {human(size)}, and at most {human(LARGEST_FILE)} are read.", hint=_HINT)


def _members(where: str, file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        members = [one for one in archive.infolist() if one.filename.endswith(".json")]
        size = sum(one.file_size for one in members)
        if not members or size > _LARGEST_ZIP:
            reason = f"it has {human(size)} unpacked" if members else "it has no file .json"
            raise AdvisoryError(f"{where}: {reason}.", hint=_HINT)
        for one in members:
            _check_size(f"{where}, {one.filename}", one.file_size)
            yield f"{where}, {one.filename}", archive.read(one)


def _download(url: str, file: IO[bytes]) -> None:
    """Fetch an address by the host's proxy and certificates, as packages of an index."""
    try:
        with index_session(read_pip_config()) as session, session.get(url, stream=True, timeout=PATIENCE) as answer:
            answer.raise_for_status()
            for data in answer.iter_content(CHUNK):
                file.write(cast(bytes, data))
                if file.tell() > LARGEST_FILE:
                    raise AdvisoryError(f"{without_login(url)}: it has more than {human(LARGEST_FILE)}.", hint=_HINT)
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise AdvisoryError(
            f"{without_login(url)} cannot be fetched: {without_logins(str(error)).rstrip('.')}.",
            hint="Try again, or give a file that you have fetched.",
        ) from None
