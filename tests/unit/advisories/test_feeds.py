"""Files, folders and zips of advisories, and files that are none."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path

import pytest
import requests

from tests.unit.advisories.feeds import OSV, TRACKER, deb, image, wheel
from torchbake.advisories import feeds
from torchbake.advisories.feeds import read_feeds
from torchbake.advisories.match import findings_of
from torchbake.errors import AdvisoryError

IMAGE = image(deb("sealwax", "3.0.17-1~deb12u2"), wheel("quill-tools", "1.4.1"))


def zipped(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, path.name)
    return target


def test_a_folder_a_zip_and_a_list_have_the_same_findings(tmp_path: Path) -> None:
    records = [json.loads(path.read_text()) for path in sorted(OSV.iterdir())]
    (tmp_path / "list.json").write_text(json.dumps(records))
    places = [OSV, zipped(OSV, tmp_path / "all.zip"), tmp_path / "list.json"]
    results = [findings_of(IMAGE, read_feeds([str(place)])) for place in places]
    assert [[(one.name, one.id) for one in findings] for findings in results] == [
        [("sealwax", "CVE-2026-1001"), ("sealwax", "CVE-2026-1004"), ("quill-tools", "CVE-2026-2001")]
    ] * 3


def test_a_folder_may_have_both_formats_and_zips_below(tmp_path: Path) -> None:
    (tmp_path / "PyPI").mkdir()
    zipped(OSV, tmp_path / "PyPI/all.zip")
    shutil.copy(TRACKER, tmp_path)
    (tmp_path / "README").write_text("not read")
    assert read_feeds([str(tmp_path)]).distributions == {"pypi", "debian:12", "debian:13"}


def test_an_export_is_as_new_as_its_newest_record(tmp_path: Path) -> None:
    newest = max(json.loads(path.read_text())["modified"] for path in OSV.iterdir())[:10]
    for place in (OSV, zipped(OSV, tmp_path / "all.zip")):
        os.utime(place)
        ((name, day, of_file),) = ((one.place, f"{one.day}", one.of_file) for one in read_feeds([f"{place}"]).days)
        assert (name, day, of_file) == (f"{place}", newest, False)


def test_the_trackers_data_is_as_new_as_its_file(tmp_path: Path) -> None:
    shutil.copy(TRACKER, tmp_path / "tracker.json")
    os.utime(tmp_path / "tracker.json", (0, 86_400 * 366))
    zipped(OSV, tmp_path / "all.zip")  # a newer export makes no tracker's file newer
    days = {one.place: one for one in read_feeds([f"{tmp_path}"]).days}
    tracker = days[f"{tmp_path / 'tracker.json'}"]
    assert (f"{tracker.day}", tracker.of_file, len(days)) == ("1971-01-02", True, 2)


def broken_zip(folder: Path) -> Path:
    path = zipped(OSV, folder / "all.zip")
    data = bytearray(path.read_bytes())
    data[60:70] = bytes(10)  # in the compressed content of the first file
    path.write_bytes(data)
    return path


def writes(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "feed.json"
        path.write_text(text)
        return path

    return write


def odd_name_in_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.writestr("\u00e9.json", "{}")
    data = (folder / "all.zip").read_bytes()
    (folder / "all.zip").write_bytes(data.replace("\u00e9".encode(), b"\xe9\xe9"))
    return folder / "all.zip"


def empty_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.writestr("README", "no record")
    return folder / "all.zip"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "feed.json")
    return folder / "feed.json"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder / "missing.json", "missing.json: No such file"),
        (lambda folder: folder, "no file .json"),
        (pipe, "neither a file nor a folder"),
        (broken_zip, "all.zip: the zip cannot be read"),
        (odd_name_in_zip, "all.zip: the zip cannot be read"),
        (lambda _: "https://[", "names no place"),
        (lambda _: f"https://{'a' * 300}.example/", "cannot be fetched"),
        (lambda _: "~nobody-here/feed.json", "No such file"),
        (lambda folder: f"{folder}/a\0b", "names no place"),
        (empty_zip, "all.zip: it has no file .json"),
        (writes("<html>"), "feed.json: it is not JSON"),
        (writes('{"a": '), "feed.json: it is not JSON"),
        (writes('{"SchemaVersion": 2, "Results": []}'), "feed.json: it is neither"),
        (writes("[]"), "feed.json: it is an empty list"),
        (writes('[{"id": "GHSA-1"}]'), "feed.json, entry 0: it is neither"),
        (writes('{"id": "GHSA-1", "modified": "x", "affected": [1]}'), "feed.json: the record 'GHSA-1'"),
    ],
    ids=[
        "missing",
        "empty folder",
        "pipe",
        "broken zip",
        "odd name",
        "odd address",
        "long host",
        "unknown user",
        "null character",
        "empty zip",
        "html",
        "cut",
        "scanner",
        "list",
        "entry",
        "osv",
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, make: Callable[[Path], Path | str], words: str) -> None:
    with pytest.raises(AdvisoryError) as error:
        read_feeds([str(make(tmp_path))])
    assert words in error.value.message
    assert error.value.hint


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "LARGEST_FILE", 100)
    with pytest.raises(AdvisoryError, match="at most"):
        read_feeds([str(TRACKER)])


def test_a_file_in_a_zip_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.json", " " * 10_000)
    monkeypatch.setattr(feeds, "LARGEST_FILE", 5000)
    assert (tmp_path / "all.zip").stat().st_size < feeds.LARGEST_FILE
    with pytest.raises(AdvisoryError, match=r"bomb\.json: .*at most"):
        read_feeds([str(tmp_path / "all.zip")])


def test_an_address_is_fetched_and_its_login_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = requests.Response()
    answer.status_code, answer.raw = 200, TRACKER.open("rb")
    urls = list[str]()

    def get(self: requests.Session, url: str, **_: object) -> requests.Response:
        urls.append(url)
        return answer

    monkeypatch.setattr(requests.Session, "get", get)
    url = "https://me:secret@mirror.example/data/json"
    answer.headers["Last-Modified"] = "Sun, 01 Nov 2026 10:00:00 GMT"
    mirror = read_feeds([url])
    result = findings_of(IMAGE, mirror)
    assert [f"{one.place} {one.day}" for one in mirror.days] == ["https://mirror.example/data/json 2026-11-01"]
    assert urls == [url]
    assert {one.source for one in result} == {"https://mirror.example/data/json"}


def test_an_address_without_a_date_is_of_today() -> None:
    assert feeds._day_of_answer("Sun, 01 Nov 2026 23:00:00 -0500") == date(2026, 11, 2)
    for text in ("", "yesterday", "Sun, 32 Nov 2026 10:00:00 GMT"):
        before = datetime.now(UTC).date()
        assert before <= feeds._day_of_answer(text) <= datetime.now(UTC).date()


def test_an_address_without_an_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = requests.Response()
    answer.status_code, answer.url, answer.reason = 404, "https://me:secret@mirror.example/x", "Not Found"
    answer.raw = BytesIO()
    monkeypatch.setattr(requests.Session, "get", lambda *_, **__: answer)
    with pytest.raises(AdvisoryError) as error:
        read_feeds(["https://me:secret@mirror.example/x"])
    assert "https://mirror.example/x cannot be fetched: 404" in error.value.message
    assert "secret" not in error.value.message
