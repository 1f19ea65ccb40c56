"""Each image check catches the image that is broken for it, and no check is set off by another's."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.broken.everything import BROKEN
from tests.e2e.broken.workshop import Base, Report, break_and_judge, judge
from tests.e2e.conftest import CPU, CUDA, INIT

SIDE_BY_SIDE = 2
_ROWS = {"cpu": CPU, "cuda": CUDA, "init": INIT}


@pytest.fixture(scope="module")
def bases(built: dict[str, dict[str, Any]]) -> dict[str, Base]:
    return {kind: Base(ref=built[row]["ref"], row=row) for kind, row in _ROWS.items()}


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, bases: dict[str, Base]) -> Iterator[dict[str, Future[Report]]]:
    """What becomes of each broken image that a selected test is about; at the end, the table of all of them."""
    wanted = [name for name in BROKEN if any(_is_about(item, name) for item in request.session.items)]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        futures = {name: pool.submit(break_and_judge, name, BROKEN[name], bases[BROKEN[name].base]) for name in wanted}
        try:
            yield futures
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        _show(futures)


def _is_about(item: pytest.Item, name: str) -> bool:
    return item.path.samefile(__file__) and item.name == f"test_it_fails_exactly_its_check[{name}]"


def _show(futures: dict[str, Future[Report]]) -> None:
    rows = [("check", "what is broken", "caught by, saying")]
    for name, future in futures.items():
        failed = future.result().failed if future.done() and not future.exception() else {}
        caught = "; ".join(f"{check}: {reason}" for check, reason in failed.items()) or "nothing"
        rows.append((name, BROKEN[name].what, caught))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print("\n")
    for check, what, caught in rows:
        print(f"{check:{widths[0]}}  {what:{widths[1]}}  {caught[:110]}")


@pytest.mark.parametrize("kind", _ROWS)
def test_what_is_not_broken_passes(kind: str, bases: dict[str, Base]) -> None:
    report = judge(bases[kind].ref, bases[kind].row)
    assert report.checks, report.log
    assert (report.failed, report.not_run) == ({}, set())


@pytest.mark.parametrize("name", BROKEN)
def test_it_fails_exactly_its_check(name: str, reports: dict[str, Future[Report]]) -> None:
    report = reports[name].result()
    assert report.failed.keys() == {name}, f"{report.failed}\n{report.log}"
