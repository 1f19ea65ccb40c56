"""Sources of packages, fetched by their address."""

import hashlib
import io
from pathlib import Path

import pytest
import requests

from torchbake.errors import HostConfigError, LockError
from torchbake.hostconfig import http_session
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.projects.fetch_source import Fetching, fetch_file

URL = "https://index.example/a-1.tar.gz"
SOURCE = b"of the package"
HOW = Fetching(
    hashes=(f"sha256:{hashlib.sha256(SOURCE).hexdigest()}",), base=Path(), config=PipConfig(), title="uv.lock: a 1"
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The one file that an index serves."""
    files = [SOURCE]

    def get(_: requests.Session, url: str, **words: object) -> requests.Response:
        answer = requests.Response()
        answer.status_code, answer.url, answer.raw = 200, url, io.BytesIO(files[0])
        return answer

    monkeypatch.setattr(requests.Session, "get", get)
    return files


def test_a_source_without_end_fills_no_disk(
    served: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_session, "LARGEST_FILE", len(SOURCE))
    assert fetch_file(URL, tmp_path, HOW).read_bytes() == SOURCE
    served[0] = SOURCE[1:] + b"?"
    with pytest.raises(LockError, match="has the hash"):
        fetch_file(URL, tmp_path, HOW)
    served[0] = SOURCE + b"?"
    with pytest.raises(HostConfigError, match=rf"^uv.lock: a 1: {URL}: this file .* has more than"):
        fetch_file(URL, tmp_path, HOW)
