"""The rule by which a log shows that a long piece of work goes on."""

import time

import pytest

from torchbake.ui import ticker


def test_a_heartbeat_is_due_after_a_time_without_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    heartbeat, lines = ticker.Heartbeat(began=now), dict[float, str]()
    for now in (102.0, 114.9, 115.0, 116.0, 130.0, 140.0, 154.0, 155.0):
        if now == 140.0:
            heartbeat.wrote()
        if line := heartbeat.line("cpu: packing"):
            lines[now] = line
    assert lines == {
        115.0: "still: cpu: packing (15 s)",
        130.0: "still: cpu: packing (30 s)",
        155.0: "still: cpu: packing (55 s)",
    }


def test_a_heartbeat_says_whether_its_work_had_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    heartbeat = ticker.Heartbeat(began=now)
    now = 7.0
    assert heartbeat.is_quiet_for(2.0)
    heartbeat.wrote()
    assert not heartbeat.is_quiet_for(2.0)
