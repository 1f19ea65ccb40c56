"""uv itself runs in these tests, without a network."""

import pytest


@pytest.fixture(autouse=True)
def _offline_uv(own_processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
