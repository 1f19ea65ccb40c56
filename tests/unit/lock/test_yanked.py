"""Yanked versions of a project's lock, by the pages of indexes; and hosts that do not answer."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from tests.unit.conftest import cpu_pins, image, lock_for, pin
from torchbake.errors import HostConfigError
from torchbake.hostconfig.index_page import yanked_files
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock import yanked
from torchbake.lock.lockfile import Lock, Pin, format_lock
from torchbake.lock.newest import odd_versions
from torchbake.lock.yanked import yanked_versions
from torchbake.matrix.spec import ImageSpec, ProjectSpec

SPEC: ImageSpec = image("2.13.0", "cpu", project=ProjectSpec(folder="trainer", lock="uv.lock"))
PAGE = """\
<a href="one.whl#sha256={0}" data-yanked="breaks &amp; burns">one.whl</a>
<a href="two.whl#sha256={1}" data-yanked>two.whl</a>
<a href="three.whl#sha256={2}">three.whl</a>
<a href="no-hash.whl" data-yanked="x">no-hash.whl</a>
"""
ONE, TWO, THREE, OTHER = ("1" * 64, "2" * 64, "3" * 64, "4" * 64)
Answers = dict[str, str | Exception]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that looks at pins with these hashes, with the answers of indexes by their address."""

    def look(pins: list[Pin], answers: Answers, config: PipConfig | None = None) -> list[str]:
        addresses: list[str] = []

        def fetch_page(address: str, *_: object) -> tuple[str, str]:
            addresses.append(address)
            answer = next((value for key, value in answers.items() if address.startswith(key)), requests.HTTPError())
            if isinstance(answer, Exception):
                raise answer
            return answer, address

        monkeypatch.setattr(yanked, "fetch_page", fetch_page)
        monkeypatch.setattr(yanked, "_SIDE_BY_SIDE", 1)
        result = yanked_versions(SPEC, locked(), pins, config or PipConfig())
        return [*result, f"{len(addresses)} asked"]

    return look


def locked() -> Lock:
    return replace(lock_for(SPEC, [*cpu_pins(), pin("tools", "1.0")]), wheels=("tools-1.0-py3-none-any.whl",))


def of(name: str, *hashes: str) -> Pin:
    return replace(pin(name, "1.0"), hashes=tuple(f"sha256:{each}" for each in hashes))


def test_a_page_says_why_its_files_are_yanked() -> None:
    files = yanked_files(PAGE.format(ONE, TWO, THREE))
    assert files == {f"sha256:{ONE}": "breaks & burns", f"sha256:{TWO}": "", f"sha256:{THREE}": None}


def test_a_version_is_yanked_if_all_its_files_are(ask: Callable[..., list[str]]) -> None:
    answers: Answers = {"https://pypi.org/simple/": PAGE.format(ONE, TWO, THREE)}
    pins = [of("a", ONE), of("b", TWO, OTHER), of("c", ONE, THREE), of("d", THREE)]
    assert ask(pins, answers) == [
        "a 1.0 of trainer/uv.lock is yanked: breaks & burns",
        "b 1.0 of trainer/uv.lock is yanked: no reason is given",
        "4 asked",
    ]


def test_indexes_without_an_answer_are_one_line(ask: Callable[..., list[str]]) -> None:
    pins = [of(name, ONE) for name in "abcde"]
    line = "not known whether the versions of a, b, c and 2 more are yanked: no index that answers has their files"
    for answer, count in (
        (requests.ConnectionError(), 1),  # a host that is silent is asked once
        (requests.Timeout(), 1),
        (requests.HTTPError(), 5),
        (HostConfigError("too large", hint="x"), 5),
        (PAGE.format(OTHER, OTHER, OTHER), 5),
        ("{}", 5),
    ):
        assert ask(pins, {"https://pypi.org/": answer}) == [line, f"{count} asked"], answer
    assert ask(pins, {}, PipConfig(no_index=True)) == [line, "0 asked"]


def test_a_closed_network_costs_no_minute(ask: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 9))  # each look at the clock costs nine seconds
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    result = ask([of(name, ONE) for name in "abcdefgh"], {"https://pypi.org/": PAGE.format(THREE, THREE, THREE)})
    assert result[-1] == "2 asked"


def test_the_next_index_answers_for_a_silent_one(ask: Callable[..., list[str]], tmp_path: Path) -> None:
    config = PipConfig(index_url="https://a.example/simple", extra_index_urls=("https://b.example/simple",))
    page = PAGE.format(ONE, TWO, THREE)
    answers: Answers = {"https://a.example": requests.ConnectionError(), "https://b.example": page}
    assert ask([of("a", ONE), of("b", THREE)], answers, config)[0].startswith("a 1.0 of trainer/uv.lock is yanked")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.html").write_text(page)
    local = PipConfig(no_index=True, find_links=(str(tmp_path),))
    assert ask([of("a", ONE)], {}, local) == ["a 1.0 of trainer/uv.lock is yanked: breaks & burns", "0 asked"]


def test_own_wheels_and_plain_rows_are_not_asked_about(ask: Callable[..., list[str]]) -> None:
    assert ask([of("tools", ONE)], {}) == ["0 asked"]
    assert yanked_versions(replace(SPEC, project=None), locked(), [of("a", ONE)], PipConfig()) == []


def test_lock_asks_about_new_versions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def record(_spec: ImageSpec, _lock: Lock, pins: Iterable[Pin], _config: PipConfig) -> list[str]:
        names.extend(each.name for each in pins)
        return []

    monkeypatch.setattr("torchbake.lock.newest.yanked_versions", record)
    before = locked()
    odd_versions(SPEC, before, PipConfig(), format_lock(before))
    assert names == []
    newer = lock_for(SPEC, [*(each for each in cpu_pins() if each.name != "numpy"), pin("numpy", "9.0")])
    odd_versions(SPEC, newer, PipConfig(), format_lock(before))
    assert names == ["numpy"]
