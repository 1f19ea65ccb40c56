"""uv itself runs in these tests, without a network and with a cache of their own."""

import pytest


@pytest.fixture(autouse=True)
def _offline_uv(own_processes: None, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "uv-cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
