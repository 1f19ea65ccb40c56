"""Reading of advisories: files, folders, zips, and addresses of them. The content tells the format of each file."""

import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

import requests
import urllib3

from torchbake.advisories.advisory import Advisory, AdvisoryFormError
from torchbake.advisories.dated import DatedInput, day_of_file
from torchbake.advisories.match import Feeds, feeds_of
from torchbake.advisories.osv import day_of_record, is_osv, osv_advisories
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


@dataclass(frozen=True, kw_only=True)
class FeedFile:
    """The content of a JSON file, the day of its last change, and the zip that it is in; "" for none."""

    where: str
    data: bytes
    day: date
    archive: str = ""


def read_feeds(places: Sequence[str]) -> Feeds:
    """Read the advisories of files, folders and http addresses. Raises AdvisoryError, which names the file."""
    advisories, distributions, days = list[Advisory](), set[str](), dict[str, DatedInput]()
    for place in places:
        _check_place(place)
        name = place_name(place)
        for file, where, value in _documents(place):
            try:
                if is_osv(value):
                    advisories += osv_advisories(value, name)
                    _add_day(days, DatedInput(place=file.archive or name, day=day_of_record(value) or date.min))
                elif is_tracker(value):
                    advisories += tracker_advisories(value, name)
                    distributions |= tracker_releases(value)
                    _add_day(days, DatedInput(place=where, day=file.day, of_file=True))
                else:
                    raise AdvisoryFormError("it is neither the data of Debian's security tracker nor a record of OSV")
            except AdvisoryFormError as error:
                raise AdvisoryError(f"{where}: {error}.", hint=_HINT) from None
    return feeds_of(advisories, distributions, days.values())


def _add_day(days: dict[str, DatedInput], one: DatedInput) -> None:
    """Keep the newest day of a place: an export of OSV is as new as its newest record."""
    if one.place not in days or days[one.place].day < one.day:
        days[one.place] = one


def place_name(place: str) -> str:
    """Return a place as results name it: without a login."""
    return without_login(place) if is_address(place) else place


def is_address(place: str) -> bool:
    return place.lower().startswith(("http://", "https://"))


def _documents(place: str) -> Iterator[tuple[FeedFile, str, Any]]:
    """Yield the JSON values of a place, with the file and the place of each. A list of records yields each record."""
    for file in _files(place):
        try:
            value = read_json(file.data)
        except NotJsonError as error:
            raise AdvisoryError(f"{file.where}: {error}.", hint=_HINT) from None
        if isinstance(value, list):
            if not value:
                raise AdvisoryError(f"{file.where}: it is an empty list.", hint=_HINT)
            yield from ((file, f"{file.where}, entry {number}", one) for number, one in enumerate(value))
        else:
            yield file, file.where, value


def _files(place: str) -> Iterator[FeedFile]:
    """Yield the content of each JSON file of a place. Raises AdvisoryError, also if there is none."""
    if is_address(place):
        with tempfile.TemporaryFile(prefix="torchbake-advisories-") as file:
            day = _download(place, file)
            yield from _content(without_login(place), file, day)
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
                yield from _content(str(each), file, day_of_file(each.stat().st_mtime))
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


def _content(where: str, file: IO[bytes], day: date) -> Iterator[FeedFile]:
    """Yield the content of a file, or of each JSON file in a zip."""
    size = file.seek(0, 2)
    file.seek(0)
    _check_size(where, size)
    if not zipfile.is_zipfile(file):
        file.seek(0)
        yield FeedFile(where=where, data=file.read(), day=day)
        return
    try:
        yield from _members(where, file, day)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        raise AdvisoryError(f"{where}: the zip cannot be read: {error}.", hint="Fetch it again.") from None


def _check_size(where: str, size: int) -> None:
    if size > LARGEST_FILE:
        raise AdvisoryError(f"{where}: it has {human(size)}, and at most {human(LARGEST_FILE)} are read.", hint=_HINT)


def _members(where: str, file: IO[bytes], day: date) -> Iterator[FeedFile]:
    with zipfile.ZipFile(file) as archive:
        members = [one for one in archive.infolist() if one.filename.endswith(".json")]
        size = sum(one.file_size for one in members)
        if not members or size > _LARGEST_ZIP:
            reason = f"it has {human(size)} unpacked" if members else "it has no file .json"
            raise AdvisoryError(f"{where}: {reason}.", hint=_HINT)
        for one in members:
            _check_size(f"{where}, {one.filename}", one.file_size)
            yield FeedFile(where=f"{where}, {one.filename}", data=archive.read(one), day=day, archive=where)


def _download(url: str, file: IO[bytes]) -> date:
    """Fetch an address by the host's proxy and certificates, as packages of an index. Return the day of its content."""
    try:
        with index_session(read_pip_config()) as session, session.get(url, stream=True, timeout=PATIENCE) as answer:
            answer.raise_for_status()
            for data in answer.iter_content(CHUNK):
                file.write(cast(bytes, data))
                if file.tell() > LARGEST_FILE:
                    raise AdvisoryError(f"{without_login(url)}: it has more than {human(LARGEST_FILE)}.", hint=_HINT)
            return _day_of_answer(answer.headers.get("Last-Modified", ""))
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise AdvisoryError(
            f"{without_login(url)} cannot be fetched: {without_logins(str(error)).rstrip('.')}.",
            hint="Try again, or give a file that you have fetched.",
        ) from None


def _day_of_answer(modified: str) -> date:
    """Return the day that a server names for a file; today if it names none."""
    try:
        return parsedate_to_datetime(modified).astimezone(UTC).date()
    except (TypeError, ValueError):
        return datetime.now(UTC).date()
