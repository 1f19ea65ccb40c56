"""Each image check catches the image that is broken for it, and no check is set off by another's."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.broken.everything import BROKEN
from tests.e2e.broken.workshop import Base, Report, break_and_judge, judge
from tests.e2e.conftest import CPU, CUDA, DEVEL, INIT, images_of, torchbake

pytestmark = pytest.mark.checks

SIDE_BY_SIDE = 2
LONGEST = 90  # characters that the table gives to what was said
_ROWS = {"cpu": CPU, "devel": DEVEL, "cuda": CUDA, "init": INIT}


@pytest.fixture(scope="module")
def bases(built: dict[str, dict[str, Any]]) -> dict[str, Base]:
    images = {**built, **images_of(torchbake("build", DEVEL, "--format", "json"))}
    return {kind: Base(ref=images[row]["ref"], row=row) for kind, row in _ROWS.items()}


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
    """A line for each image: whether its check alone caught it, what is broken, and what was said of it."""
    told = {name: _told(name, future) for name, future in futures.items()}
    width, what_width = (max(map(len, words), default=0) for words in (told, [BROKEN[name].what for name in told]))
    print("\n")
    for name, (good, said) in told.items():
        print(f"{'✓' if good else '✗'} {name:{width}}  {BROKEN[name].what:{what_width}}  {_cut(said)}")
    print(f"{sum(good for good, _ in told.values())} of {len(told)} broken images fail exactly their check.")


def _told(name: str, future: Future[Report]) -> tuple[bool, str]:
    if future.cancelled():
        return False, "not judged: the tests ended before"
    if error := future.exception():
        return False, f"not judged: {type(error).__name__}: {error}"
    failed = future.result().failed
    if checks_of(failed) == {name}:
        return True, next(iter(failed.values()))
    return False, "; ".join(f"{check}: {reason}" for check, reason in failed.items()) or "nothing caught it"


def checks_of(failed: Iterable[str]) -> set[str]:
    """Which checks failed; a smoke test's id also says where it ran."""
    return {check.partition("[")[0] for check in failed}


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


@pytest.mark.parametrize("kind", _ROWS)
def test_what_is_not_broken_passes(kind: str, bases: dict[str, Base]) -> None:
    report = judge(bases[kind].ref, bases[kind].row)
    assert report.checks, report.log
    assert (report.failed, report.not_run) == ({}, set())


@pytest.mark.parametrize("name", BROKEN)
def test_it_fails_exactly_its_check(name: str, reports: dict[str, Future[Report]]) -> None:
    report = reports[name].result()
    assert checks_of(report.failed) == {name}, f"{report.failed}\n{report.log}"
