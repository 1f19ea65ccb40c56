"""Tables of check results: each failure and each reason once, the worst last."""

from pathlib import Path

import pytest

from tests.unit.checks.test_reports import NAME, run_of
from tests.unit.checks.test_verdict import FAILED, NOT_RUN, PASSED, check
from torchbake.checks.tables import show_checks, show_run
from torchbake.checks.verdict import CheckResult

Streams = pytest.CaptureFixture[str]


def test_the_table_of_a_run_has_each_failure_and_reason_once(tmp_path: Path, capsys: Streams) -> None:
    show_run(run_of(tmp_path))
    text = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert f"{NAME} failed 2 2 3 0 4.5 s out of date: its inputs changed" in rows
    assert "volume-permissions passed 1 0 0 0 4.5 s unchanged since 2026-11-21 07:48 UTC" in rows
    assert "2.9.1-cpu failed not in the engine. Build it: nox -s build -- 2.9.1-cpu" in rows
    assert f"python.torch {NAME} torch.__version__ is 2.13.0, not 2.12.0" in rows
    assert "smoke.nccl, smoke.tensor[cuda] no GPU in the engine" in rows
    assert text.count("no GPU in the engine") == 1


def render(capsys: Streams, *checks: CheckResult) -> str:
    capsys.readouterr()
    show_checks(checks)
    return capsys.readouterr().out


def test_a_table_of_checks_ends_with_what_is_wrong(capsys: Streams) -> None:
    lines = render(
        capsys, check("a.bad", FAILED, "it leaks"), check("a.good"), check("a.open", NOT_RUN, "no GPU")
    ).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["a.good", "a.open", "a.bad"]
    assert "it leaks" in lines[3]
    assert lines[-1].split(maxsplit=1) == ["a.open", "no GPU"]


def test_a_table_of_checks_that_all_ran_has_no_foot(capsys: Streams) -> None:
    assert "not run" not in render(capsys, check("a.good", PASSED))
