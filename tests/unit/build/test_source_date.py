"""The times that images are given."""

from pathlib import Path

import pytest

from torchbake.build.source_date import content_epoch, created, rfc3339
from torchbake.errors import UsageError


def test_the_latest_time_in_an_image_is_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert rfc3339(content_epoch()) == "2025-01-01T00:00:00Z"


@pytest.mark.parametrize(("epoch", "time"), [("0", "1970-01-01T00:00:00Z"), ("1700000000", "2023-11-14T22:13:20Z")])
def test_the_environment_decides_on_both_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, epoch: str, time: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert content_epoch() == int(epoch)
    assert created(tmp_path) == time


@pytest.mark.parametrize("epoch", ["yesterday", "-1", "1.5", " 1", "2025-01-01"])
def test_an_epoch_that_is_no_number_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, epoch: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
        content_epoch()


def test_an_empty_epoch_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")
    assert content_epoch() == 1735689600
