"""The pool of package files: what it fetches, from where, and that a file with another hash never reaches a build."""

import hashlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.unit.debian.packages import package
from torchbake.debian import pool as debian_pool
from torchbake.debian.lockfile import DebianPackage
from torchbake.debian.pool import DebianPool, pool_of
from torchbake.errors import BuildError
from torchbake.hostconfig.apt_archives import AptArchive
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.matrix.spec import BaseSpec


class Mirrors:
    """In place of the network: files by address, and the requests that were made."""

    def __init__(self) -> None:
        self.files, self.requests = dict[str, bytes](), list[tuple[str, object]]()

    def get(self, url: str, **options: object) -> requests.Response:
        self.requests.append((url, options["proxies"]))
        answer = requests.Response()
        answer.status_code = 200 if url in self.files else 404
        answer.url = url
        answer.raw = io.BytesIO(self.files.get(url, b""))
        return answer

    def serve(self, mirror: str, name: str, **values: Any) -> DebianPackage:
        content = name.encode()
        one = package(name, sha256=hashlib.sha256(content).hexdigest(), **values)
        self.files[f"{mirror}/{one.path}"] = content
        return one


@pytest.fixture
def mirrors(monkeypatch: pytest.MonkeyPatch) -> Mirrors:
    mirrors = Mirrors()
    monkeypatch.setattr(requests, "get", mirrors.get)
    return mirrors


def pool(folder: Path, *hosts: str) -> DebianPool:
    archives = [AptArchive(mirror=host, security=f"{host}-security", components="main", keys="") for host in hosts]
    apt = AptConfig(proxies=(("Acquire::http::Proxy", "http://proxy:3142"),))
    return DebianPool(folder=folder / "pool", archives=archives, apt=apt)


def test_a_package_comes_from_its_archive_once(mirrors: Mirrors, tmp_path: Path) -> None:
    git = mirrors.serve("http://one/debian", "git")
    fix = mirrors.serve("http://one/debian-security", "libssl3", archive="security")
    folder = pool(tmp_path, "http://one/debian").context({"system": [git], "added": [fix]}, tmp_path)
    assert (folder / "system/git_1.0-1_amd64.deb").read_bytes() == b"git"
    assert (folder / "added/libssl3_1.0-1_amd64.deb").read_bytes() == b"libssl3"
    assert pool(tmp_path, "http://one/debian").context({"system": [git], "added": [fix]}, tmp_path) == folder
    assert len(mirrors.requests) == 2
    assert {str(proxies) for _, proxies in mirrors.requests} == {"{'http': 'http://proxy:3142'}"}


def test_a_step_without_a_package_is_locked_too(mirrors: Mirrors, tmp_path: Path) -> None:
    folder = pool(tmp_path, "http://one/debian").context({"system": [], "added": []}, tmp_path)
    assert {path.parent.name for path in folder.rglob("locked")} == {"system", "added"}


def test_another_lock_has_another_folder(mirrors: Mirrors, tmp_path: Path) -> None:
    git, tini = mirrors.serve("http://one/debian", "git"), mirrors.serve("http://one/debian", "tini")
    one = pool(tmp_path, "http://one/debian")
    assert one.context({"system": [git]}, tmp_path) != one.context({"system": [git, tini]}, tmp_path)
    assert one.context({"system": [git]}, tmp_path) != one.context({"added": [git]}, tmp_path)


def test_the_next_archive_has_what_a_mirror_dropped(mirrors: Mirrors, tmp_path: Path) -> None:
    git = mirrors.serve("http://dated/debian", "git")
    pool(tmp_path, "http://one/debian", "http://dated/debian").fetch([git])
    assert [url for url, _ in mirrors.requests] == [f"http://one/debian/{git.path}", f"http://dated/debian/{git.path}"]


def test_a_file_with_another_hash_is_refused(mirrors: Mirrors, tmp_path: Path) -> None:
    git = mirrors.serve("http://one/debian", "git")
    mirrors.files = dict.fromkeys(mirrors.files, b"another")
    with pytest.raises(BuildError, match=r"git 1\.0-1 cannot be fetched: .*another hash"):
        pool(tmp_path, "http://one/debian").context({"system": [git]}, tmp_path)
    assert not [*tmp_path.rglob("*.deb")]


def test_a_damaged_file_of_the_pool_is_fetched_again(mirrors: Mirrors, tmp_path: Path) -> None:
    git = mirrors.serve("http://one/debian", "git")
    one = pool(tmp_path, "http://one/debian")
    one.fetch([git])
    one.path(git).write_bytes(b"damaged")
    folder = one.context({"system": [git]}, tmp_path)
    assert (folder / "system/git_1.0-1_amd64.deb").read_bytes() == b"git"
    one.path(git).write_bytes(b"damaged")  # the folder of the build has the same file
    assert one.context({"system": [git]}, tmp_path) == folder
    assert (folder / "system/git_1.0-1_amd64.deb").read_bytes() == b"git"


def test_an_error_shows_no_login(mirrors: Mirrors, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="//one/debian") as error:
        pool(tmp_path, "http://me:secret@one/debian").fetch([package("git")])
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "proxies"),
    [
        ("http://one/debian", {"http": "http://proxy:3142"}),
        ("https://one/debian", {"https": "http://proxy:3142"}),
        ("http://inner:8080/debian", {"http": ""}),
        ("https://outer/debian", {"https": "http://other:1"}),
        ("http://outer/debian", {"http": "http://proxy:3142"}),
    ],
)
def test_the_proxy_is_apts_proxy_for_the_host(
    mirrors: Mirrors, tmp_path: Path, url: str, proxies: dict[str, str]
) -> None:  # fmt: skip
    git, one = mirrors.serve(url, "git"), pool(tmp_path, url)
    names = [("http::Proxy::inner", "DIRECT"), ("https::Proxy::outer", "http://other:1")]
    own = tuple((f"Acquire::{key}", value) for key, value in names)
    replace(one, apt=AptConfig(proxies=(*one.apt.proxies, *own))).fetch([git])
    assert [proxy for _, proxy in mirrors.requests] == [proxies]


def test_a_snapshot_is_the_last_archive() -> None:
    apt = AptConfig(mirror="http://one/debian", security_mirror="http://one/debian-security")
    base = BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11")
    day = "https://dated.example/archive/debian/20261101T000000Z"
    places = [(one.mirror, one.security) for one in pool_of(replace(base, snapshot=day), PipConfig(), apt).archives]
    security = "https://dated.example/archive/debian-security/20261101T000000Z"
    assert places == [("http://one/debian", "http://one/debian-security"), (day, security)]
    assert len(pool_of(base, PipConfig(), apt).archives) == 1


def test_a_file_has_the_version_of_its_line_in_its_name(mirrors: Mirrors, tmp_path: Path) -> None:
    git = mirrors.serve("http://one/debian", "git", version="1:2.39-1")
    folder = pool(tmp_path, "http://one/debian").context({"system": [git]}, tmp_path)
    assert [path.name for path in folder.rglob("*.deb")] == ["git_1_2.39-1_amd64.deb"]


def test_a_pool_hashes_a_file_once(mirrors: Mirrors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = mirrors.serve("http://one/debian", "git")
    pool(tmp_path, "http://one/debian").fetch([git])
    hashed = list[Path]()

    def file_digest(path: Path) -> str:
        hashed.append(path)
        return f"sha256:{git.sha256}"

    monkeypatch.setattr(debian_pool, "file_digest", file_digest)
    one = pool(tmp_path, "http://one/debian")
    for name in ("system", "added"):
        one.context({name: [git]}, tmp_path)
    assert hashed == [one.path(git)]
