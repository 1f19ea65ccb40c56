"""Versions that a lock takes and nobody would expect, each told with its reason."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
from packaging.version import Version

from tests.unit.conftest import cpu_pins, cuda_pins, image, lock_for, pin
from torchbake.errors import HostConfigError, LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock import newest as odd
from torchbake.lock.lockfile import Pin, format_lock
from torchbake.lock.newest import odd_versions, upload_times
from torchbake.matrix.spec import ProjectSpec

SPEC = image(pip=("numpy", "hydra-core"))
# By Python, or for wheels, the newest version of hydra-core that an index has.
Index = dict[str, str]


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that reports a lock with hydra-core ``locked``, against an index."""

    def tell(locked: str, index: Index, *, row: str = "hydra-core", previous: Sequence[Pin] = ()) -> list[str]:
        def newest(
            names: Sequence[str], python: str, config: PipConfig, *, wheels: bool, platform: str
        ) -> dict[str, str]:
            if "fails" in index:
                raise LockError(index["fails"])
            text = index["wheels"] if wheels else index[python]
            return {name: text if name == "hydra-core" else "2.4.6" for name in names}

        monkeypatch.setattr(odd, "newest", newest)
        monkeypatch.setattr(odd, "why_not_installable", lambda *_: index.get("needs", ""))
        years = {Version(key[1:]): int(year) for key, year in index.items() if key[0] == "v" and year.isdigit()}
        times = {version: datetime(year, 1, 1, tzinfo=UTC) for version, year in years.items()}
        monkeypatch.setattr(odd, "upload_times", lambda *_: times)
        spec = image(pip=("numpy", row))
        before = format_lock(lock_for(spec, previous)) if previous else ""
        return odd_versions(spec, lock_for(spec, [*cuda_pins(), pin("hydra-core", locked)]), PipConfig(), before)

    return tell


def index(*, anywhere: str = "1.3.2", here: str = "1.3.2", wheels: str = "1.3.2", **more: str) -> Index:
    return {"3.99": anywhere, "3.11": here, "wheels": wheels, **more}


@pytest.mark.parametrize(
    ("has", "reason"),
    [
        (index(here="0.11.3", wheels="0.11.3"), "not for Python 3.11"),
        (index(), "torch 2.10.0, another package of the row or its own metadata"),
        (index(anywhere="0.11.3"), "torch 2.10.0, another"),  # 1.3.2 is for this Python, and for no later one
    ],
    ids=["another Python", "held back", "an upper bound on Python"],
)
def test_a_version_behind_the_newest_is_told_with_its_reason(
    has: Index, reason: str, telling: Callable[..., list[str]]
) -> None:
    (output,) = telling("0.11.3", has)
    assert output.startswith("hydra-core 0.11.3 is not the newest, 1.3.2: ")
    assert reason in output


@pytest.mark.parametrize(
    ("locked", "has", "reason"),
    [
        ("0.11.3", index(wheels="0.11.3"), "newer ones have no wheel"),
        ("0.11.3", index(needs="antlr4 has no wheel"), "antlr4 has no wheel"),
        ("1.0.0", index(needs="antlr4 has no wheel", **{"v1.0.0": "2020", "v1.3.2": "2022"}), "antlr4 has no wheel"),
    ],
    ids=["another major version, sources alone", "another major version, a dependency", "two years older"],
)
def test_a_version_far_behind_for_want_of_a_wheel_is_refused(
    locked: str, has: Index, reason: str, telling: Callable[..., list[str]]
) -> None:
    with pytest.raises(LockError, match=f"hydra-core {locked} is not the newest, 1.3.2: {reason}") as refused:
        telling(locked, has)
    assert refused.value.hint
    assert "pip wheel --wheel-dir FOLDER hydra-core==1.3.2" in refused.value.hint


@pytest.mark.parametrize("times", [{}, {"v1.3.2": "2022"}, {"v1.2.0": "2021", "v1.3.2": "2022"}])
def test_a_version_a_little_behind_for_want_of_a_wheel_is_told(times: Index, telling: Callable[..., list[str]]) -> None:
    """Also if no index tells when the versions were uploaded."""
    (output,) = telling("1.2.0", index(needs="antlr4 has no wheel", **times))
    assert output == "hydra-core 1.2.0 is not the newest, 1.3.2: antlr4 has no wheel"


def test_a_pre_release_is_told(telling: Callable[..., list[str]]) -> None:
    (output,) = telling("1.4.0rc3", index())
    assert output.startswith("hydra-core 1.4.0rc3 is a pre-release")


def test_the_newest_version_is_nothing_to_tell(telling: Callable[..., list[str]]) -> None:
    assert telling("1.3.2", index()) == []


@pytest.mark.parametrize("row", ["hydra-core<1", "hydra-core==0.11.3", "hydra-core; python_version>'3'"])
def test_what_the_row_wants_so_is_nothing_to_tell(row: str, telling: Callable[..., list[str]]) -> None:
    assert telling("0.11.3", index(), row=row) == []


def test_what_was_locked_before_is_nothing_to_tell_again(telling: Callable[..., list[str]]) -> None:
    before = [*cuda_pins(), pin("hydra-core", "0.11.3")]
    assert telling("0.11.3", {"fails": "nobody is to be asked"}, previous=before) == []


def test_indexes_that_cannot_be_asked_are_told_and_end_nothing(telling: Callable[..., list[str]]) -> None:
    (output,) = telling("0.11.3", {"fails": "no network"})
    assert "could not ask whether newer versions exist: no network" in output


FILES: list[dict[str, Any]] = [
    {"filename": "hydra_core-1.0-py3-none-any.whl", "upload-time": "2020-09-03T10:00:00.500000Z"},
    {"filename": "hydra-core-1.0.tar.gz", "upload-time": "2019-09-03T10:00:00Z"},
    {"filename": "hydra-core-2.0.tar.gz", "upload-time": "2023-02-23T18:33:43.030739Z"},
    {"filename": "hydra-core-3.0.tar.gz"},
    {"filename": "hydra-core-4.0.tar.gz", "upload-time": 7},
    {"filename": "hydra.egg", "upload-time": "2023-02-23T18:33:43Z"},
]


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requested URLs. One answers in JSON, one in HTML, one with a trap, and one is not reached."""
    requested: list[str] = []
    texts = {"html": b"<a>it</a>", "deep": b'{"files": ' + b"[" * 100_000, "long": b" " * 33 * 2**20}

    def get(_: requests.Session, url: str, **words: Any) -> requests.Response:
        requested.append(url)
        assert "json" in words["headers"]["Accept"]
        if "down" in url:
            raise requests.ConnectionError
        answer = requests.Response()
        answer.status_code, answer.url = 200, url
        text = next((text for name, text in texts.items() if name in url), json.dumps({"files": FILES}).encode())
        answer.raw = io.BytesIO(text)
        return answer

    monkeypatch.setattr(requests.Session, "get", get)
    return requested


def test_the_first_upload_of_each_version_is_found(requested: list[str]) -> None:
    times = upload_times("hydra-core", PipConfig(extra_index_urls=("https://html.example", "https://down.example/x/")))
    assert {str(version): time.year for version, time in times.items()} == {"1.0": 2019, "2.0": 2023}
    assert times[Version("1.0")].tzinfo
    assert requested[1:] == ["https://html.example/hydra-core/", "https://down.example/x/hydra-core/"]


def test_no_index_that_tells_is_no_time(requested: list[str]) -> None:
    assert upload_times("hydra-core", PipConfig(index_url="https://html.example")) == {}
    assert upload_times("hydra-core", PipConfig(index_url="file:///srv/simple")) == {}
    assert upload_times("hydra-core", PipConfig(no_index=True)) == {}
    assert requested == ["https://html.example/hydra-core/"]


@pytest.mark.usefixtures("requested")
def test_no_page_of_an_index_takes_all_memory() -> None:
    assert upload_times("hydra-core", PipConfig(index_url="https://deep.example")) == {}
    with pytest.raises(HostConfigError, match=r"https://long.example/hydra-core/: this page .* 32 MiB"):
        upload_times("hydra-core", PipConfig(index_url="https://long.example"))


def test_a_project_without_setuptools_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odd, "yanked_versions", lambda *_: [])
    spec = image("2.13.0", "cpu", project=ProjectSpec(folder="trainer", lock="uv.lock"))
    without, within = lock_for(spec, cpu_pins()), lock_for(spec, [*cpu_pins(), pin("setuptools", "80.9")])
    [line] = odd_versions(spec, without, PipConfig())
    assert "trainer/uv.lock has no setuptools" in line
    assert "on the CPU" in line
    assert "uv add setuptools" in line
    old = replace(spec, project=ProjectSpec(folder="trainer", lock="requirements.txt"))
    [line] = odd_versions(old, lock_for(old, [*cpu_pins(), pin("triton", "3.2.0")]), PipConfig())
    assert "on the CPU" not in line
    assert "--allow-unsafe" in line
    assert odd_versions(spec, without, PipConfig(), format_lock(without)) == []
    assert odd_versions(spec, within, PipConfig()) == []
    assert odd_versions(replace(spec, compiler=False), without, PipConfig()) == []
