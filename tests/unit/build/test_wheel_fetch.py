"""The choice of a wheel from an index: the same as uv's."""

import io
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import requests
from requests.adapters import HTTPAdapter

from tests.wheels import write_wheel
from torchbake.build.wheel_fetch import WheelArchive, best_archive, fetch_wheel, find_archive, keep
from torchbake.errors import BuildError, HostConfigError
from torchbake.hostconfig import http_session
from torchbake.hostconfig.http_session import index_session
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin

ONE, OTHER = "a" * 64, "b" * 64
PIN = Pin(name="nvidia-cublas-cu12", version="12.8.4.1", hashes=(f"sha256:{ONE}", f"sha256:{OTHER}"))
BEFORE, SINCE = "manylinux2014_x86_64", "manylinux2014_x86_64.manylinux_2_17_x86_64"


def page(**platforms: str) -> str:
    """A page of an index with a wheel for each hash, which is named by its first digit."""
    return "\n".join(
        f'<a href="../../files/nvidia_cublas_cu12-12.8.4.1-py3-none-{platform}.whl#sha256={digit * 64}">it</a>'
        for digit, platform in platforms.items()
    )


def test_the_platform_that_uv_prefers_comes_first() -> None:
    value = best_archive(page(a=BEFORE, b=SINCE), "https://index.example/simple/nvidia-cublas-cu12/", PIN, "3.11")
    address = f"https://index.example/files/nvidia_cublas_cu12-12.8.4.1-py3-none-{SINCE}.whl"
    assert value == WheelArchive(hashes=(f"sha256:{OTHER}",), url=address)


@pytest.mark.parametrize("builds", [("", "-3"), ("-2", "-10"), ("", "-1a")])
def test_of_two_that_fit_alike_the_later_build_is_taken(builds: tuple[str, str]) -> None:
    """As uv does: torch 2.10.0 has some of its wheels twice."""
    links = [
        f'<a href="../../files/nvidia_cublas_cu12-12.8.4.1{build}-py3-none-{SINCE}.whl#sha256={digest}">it</a>'
        for build, digest in zip(builds, (ONE, OTHER), strict=True)
    ]
    for text in ("\n".join(links), "\n".join(links[::-1])):
        value = best_archive(text, "https://index.example/simple/nvidia-cublas-cu12/", PIN, "3.11")
        assert value
        assert value.hashes == (f"sha256:{OTHER}",)


@pytest.mark.parametrize(
    "text",
    [page(c=SINCE), page(a="win_amd64"), ""],
    ids=["another hash", "another platform", "nothing"],
)
def test_what_does_not_fit_has_no_address(text: str) -> None:
    assert best_archive(text, "https://index.example/simple/nvidia-cublas-cu12/", PIN, "3.11") is None


def test_a_wheel_of_an_index_without_hashes_must_match_the_lock() -> None:
    own = "https://index.example/simple/nvidia-cublas-cu12/"
    value = best_archive(page(a=SINCE).replace("#sha256", "#md5"), own, PIN, "3.11")
    assert value
    assert value.hashes == PIN.hashes
    both = page(a=SINCE).replace("#sha256", "#md5") + page(b=SINCE)
    value = best_archive(both, own, PIN, "3.11")
    assert value
    assert value.hashes == (f"sha256:{OTHER}",), "of two that fit alike the one whose hash is known"


def test_of_two_files_that_fit_alike_the_first_by_name_is_taken() -> None:
    platforms = ["manylinux_2_17_x86_64.manylinux2014_x86_64", "manylinux2014_x86_64.manylinux_2_17_x86_64"]
    for order in (platforms, platforms[::-1]):
        text = "\n".join(page(**{"a" if one == min(platforms) else "b": one}) for one in order)
        value = best_archive(text, "https://index.example/simple/nvidia-cublas-cu12/", PIN, "3.11")
        assert value
        assert min(platforms) in value.url


def test_the_login_of_an_index_is_for_links_to_its_host_alone() -> None:
    for link, address in {
        "x/": "https://me:secret@index.example/simple/x/",
        "https://index.example/x/": "https://me:secret@index.example/x/",
        "https://files.example/x/": "https://files.example/x/",
        "http://index.example/x/": "http://index.example/x/",
    }.items():
        text = page(a=SINCE).replace("../../files/", link)
        value = best_archive(text, "https://me:secret@index.example/simple/", PIN, "3.11")
        assert value
        assert value.url.rpartition("/")[0] + "/" == address


def test_a_wheel_in_a_folder_of_this_hosts_is_taken_as_it_is(tmp_path: Path) -> None:
    files = {"nvidia/__init__.py": b""}
    pin = Pin(name=PIN.name, version=PIN.version, hashes=(write_wheel(tmp_path, PIN.name, PIN.version, files),))
    pip, target = PipConfig(find_links=(str(tmp_path),)), tmp_path / "wheel.whl"
    value = find_archive(pin, pip, "3.11")
    assert value
    assert value.hashes == pin.hashes
    with fetch_wheel(value, pip, target, threading.Event()) as wheel:
        assert (wheel.path, wheel.digest) == (value.file, pin.hashes[0])
    assert value.file
    value.file.write_bytes(b"another file")
    with pytest.raises(BuildError, match="has another hash"), fetch_wheel(value, pip, target, threading.Event()):
        pass


class Index:
    """An index of one wheel, which counts how often it is asked for it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pin = Pin(name=PIN.name, version=PIN.version, hashes=(write_wheel(folder, PIN.name, PIN.version, {}),))
        (self.wheel,) = folder.glob("*.whl")
        self.served, self.fetched, self.padding, self.failures = self.wheel.read_bytes(), 0, 0, 0
        self.headers = dict[str, str]()
        self.queries = list[str]()
        monkeypatch.setattr(requests.Session, "get", lambda _, url, **words: self._answer(url, words))

    def _answer(self, url: str, words: Mapping[str, object]) -> requests.Response:
        self.queries.append(url)
        self.fetched += url.endswith(".whl")
        if url.endswith(".whl") and self.fetched <= self.failures:
            raise requests.ConnectionError(f"no answer of {url}")
        answer = requests.Response()
        link = f'<a href="{self.wheel.name}#{self.pin.hashes[0].replace(":", "=")}">it</a>'
        answer.status_code, answer.url = 200, url
        answer.headers.update(self.headers)
        answer.raw = io.BytesIO(self.served if url.endswith(".whl") else link.encode() + b" " * self.padding)
        return answer


def test_a_wheel_is_fetched_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, stored_item, lines = Index(tmp_path / "index", monkeypatch), tmp_path / "kept", list[str]()
    for _ in range(2):
        assert keep([index.pin], PipConfig(), stored_item, lines.append)
    assert lines == [f"fetching {PIN.name} {PIN.version} for the builders"]
    assert [path.name for path in stored_item.iterdir()] == [index.wheel.name]
    assert (stored_item / index.wheel.name).read_bytes() == index.served
    assert index.fetched == 1


def test_a_wheel_that_this_host_has_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(tmp_path / "index", monkeypatch)
    assert keep([index.pin], PipConfig(find_links=(str(index.wheel.parent),)), tmp_path / "kept", print)
    assert index.fetched == 0
    assert [*(tmp_path / "kept").iterdir()] == []


def test_other_bytes_than_the_locked_ones_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(tmp_path / "index", monkeypatch)
    index.served += b"more"
    assert keep([index.pin], PipConfig(), tmp_path / "kept", print)
    assert index.fetched == 1
    assert [*(tmp_path / "kept").iterdir()] == []


def test_a_page_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(tmp_path / "index", monkeypatch)
    index.padding = 2**25
    with pytest.raises(HostConfigError, match=r"^https://pypi\.org/simple/nvidia-cublas-cu12/: .* 32 MiB") as caught:
        find_archive(index.pin, PipConfig(), "3.11")
    assert caught.value.hint
    index.padding = 2**20
    assert find_archive(index.pin, PipConfig(), "3.11")


def test_a_wheel_without_end_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(tmp_path / "index", monkeypatch)
    monkeypatch.setattr(http_session, "LARGEST_FILE", len(index.served))
    assert keep([index.pin], PipConfig(), tmp_path / "kept", print)
    index.served += b"m"
    with pytest.raises(HostConfigError, match=rf"^{index.wheel.name}: this file of a package index has more than"):
        keep([index.pin], PipConfig(), tmp_path / "other", print)
    assert [*(tmp_path / "other").iterdir()] == []


@pytest.mark.parametrize(
    ("headers", "in_memory"),
    [
        ({"Content-Length": "1000"}, True),
        ({"Content-Length": "1000", "Content-Encoding": "gzip"}, False),  # its length is not that of the wheel
        ({"Content-Length": "-1"}, False),
        ({"Content-Length": "many"}, False),
        ({"Content-Length": "9" * 5000}, False),
    ],
    ids=["plain", "compressed", "negative", "word", "number without end"],
)
def test_a_wheel_of_no_known_size_goes_to_the_disk(
    headers: dict[str, str], in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(tmp_path / "index", monkeypatch)
    index.headers = headers
    archive = find_archive(index.pin, PipConfig(), "3.11")
    assert archive
    with fetch_wheel(archive, PipConfig(), tmp_path / "wheel", threading.Event(), lambda: 2**40) as actual:
        assert actual.path.is_symlink() == in_memory


def test_a_folder_that_is_none_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(tmp_path / "index", monkeypatch)
    (tmp_path / "file").write_text("")
    assert not keep([index.pin], PipConfig(), tmp_path / "file/kept", print)
    assert index.fetched == 0


def test_a_download_that_breaks_off_is_tried_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, stopping = Index(tmp_path / "index", monkeypatch), threading.Event()
    monkeypatch.setattr(stopping, "wait", lambda _: False)
    pip = PipConfig(index_url="https://me:secret@index.example/simple")
    archive = find_archive(index.pin, pip, "3.11")
    assert archive
    index.failures = 2
    with fetch_wheel(archive, pip, tmp_path / "wheel", stopping) as actual:
        assert actual.path.read_bytes() == index.served
    index.fetched, index.failures = 0, 9
    with pytest.raises(BuildError) as caught, fetch_wheel(archive, pip, tmp_path / "wheel", stopping):
        pass
    assert index.fetched == 3
    assert str(caught.value).startswith(f"{index.wheel.name} cannot be fetched: no answer of https://index.example/")


def test_find_links_are_read_first_and_alone_without_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, pages = Index(tmp_path / "index", monkeypatch), ("https://wheels.example/all.html",)
    other = Pin(name=PIN.name, version="99", hashes=PIN.hashes)
    places = [*pages, f"https://pypi.org/simple/{PIN.name}/", f"https://more.example/{PIN.name}/"]
    for no_index, expected in ((False, places), (True, list(pages))):
        pip = PipConfig(find_links=pages, no_index=no_index)
        assert find_archive(other, pip, "3.11", ["https://more.example"]) is None
        assert index.queries == expected
        index.queries.clear()
    value = find_archive(index.pin, PipConfig(find_links=pages, no_index=True), "3.11")
    assert value
    assert value.url == f"https://wheels.example/{index.wheel.name}"


def test_certificates_of_trusted_hosts_alone_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = dict[str, object]()
    monkeypatch.setattr(HTTPAdapter, "send", lambda _, request, **words: checked.update({request.url: words["verify"]}))
    pip = PipConfig(trusted_hosts=("any.example", "one.example:8443"))
    with index_session(pip) as session:
        for host in ("any.example", "any.example:444", "one.example:8443", "one.example", "any.example.org"):
            url = f"https://{host}/"
            session.get_adapter(url).send(requests.Request("GET", url).prepare(), verify=True)
    assert checked == {
        "https://any.example/": False,
        "https://any.example:444/": False,
        "https://one.example:8443/": False,
        "https://one.example/": True,
        "https://any.example.org/": True,
    }
