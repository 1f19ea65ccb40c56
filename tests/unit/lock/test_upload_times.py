"""When releases were uploaded, of pages of indexes."""

import io
import json
from typing import Any

import pytest
import requests
from packaging.version import Version

from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.newest import upload_times

FILES: list[dict[str, Any]] = [
    {"filename": "hydra_core-1.0-py3-none-any.whl", "upload-time": "2020-09-03T10:00:00.500000Z"},
    {"filename": "hydra-core-1.0.tar.gz", "upload-time": "2019-09-03T10:00:00Z"},
    {"filename": "hydra-core-2.0.tar.gz", "upload-time": "2023-02-23T18:33:43.030739Z"},
    {"filename": "hydra-core-3.0.tar.gz"},
    {"filename": "hydra-core-4.0.tar.gz", "upload-time": 7},
    {"filename": "hydra.egg", "upload-time": "2023-02-23T18:33:43Z"},
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that are asked. One answers in JSON, one in HTML, and one is not reached."""
    asked: list[str] = []

    def get(url: str, **_: object) -> requests.Response:
        asked.append(url)
        if "down" in url:
            raise requests.ConnectionError
        answer = requests.Response()
        answer.status_code = 200
        answer.raw = io.BytesIO(b"<a>it</a>" if "html" in url else json.dumps({"files": FILES}).encode())
        return answer

    monkeypatch.setattr(requests, "get", get)
    return asked


def test_the_first_upload_of_each_version_is_found(asked: list[str]) -> None:
    found = upload_times("hydra-core", PipConfig(extra_index_urls=("https://html.example", "https://down.example/x/")))
    assert {str(version): time.year for version, time in found.items()} == {"1.0": 2019, "2.0": 2023}
    assert found[Version("1.0")].tzinfo
    assert asked[1:] == ["https://html.example/hydra-core/", "https://down.example/x/hydra-core/"]


def test_no_index_that_tells_is_no_time(asked: list[str]) -> None:
    assert upload_times("hydra-core", PipConfig(index_url="https://html.example")) == {}
    assert upload_times("hydra-core", PipConfig(index_url="file:///srv/simple")) == {}
    assert upload_times("hydra-core", PipConfig(no_index=True)) == {}
    assert asked == ["https://html.example/hydra-core/"]
