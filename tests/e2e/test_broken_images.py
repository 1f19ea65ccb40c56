"""Each image check fails on the image with its defect, and on no other.

Compatible defects share one image, which saves two thirds of the time; `--apart` builds one image for each defect.
They are judged by the checks of the same families, and every night by all checks.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.broken.everything import BROKEN, groups_of
from tests.e2e.broken.workshop import Base, Report, break_and_judge, judge
from tests.e2e.conftest import CPU, CUDA, DEVEL, INIT

pytestmark = pytest.mark.checks

SIDE_BY_SIDE = 2
LONGEST = 90  # characters of a reason in the table
NIGHT = "test_it_fails_no_other_check"
_ROWS = {"cpu": CPU, "cuda": CUDA, "init": INIT}


@dataclass(frozen=True, kw_only=True)
class Broke:
    """The pending report of an image with a group of defects."""

    group: tuple[str, ...]
    future: Future[Report]

    def wrong(self, name: str) -> str:
        """Return why the report is wrong for one defect of the group; empty if it is right."""
        failed = self.future.result().failed
        more = {check: reason for check, reason in failed.items() if not checks_of([check]) <= set(self.group)}
        missed = "" if name in checks_of(failed) else "it was not caught"
        others = "; ".join(f"{check} fails, too: {reason}" for check, reason in more.items())
        return "; ".join(filter(None, (missed, others)))


@pytest.fixture(scope="module")
def bases(built: dict[str, dict[str, Any]]) -> dict[str, Base]:
    return {kind: Base(ref=built[row]["ref"], row=row) for kind, row in _ROWS.items() if row in built}


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, bases: dict[str, Base]) -> Iterator[dict[str, Broke]]:
    """The reports of the broken images for the selected tests; print a table of all at the end."""
    names = {item.name for item in request.session.items if item.path.samefile(__file__)}
    is_whole = any(name.startswith(NIGHT) for name in names)
    cases = [name for name in BROKEN if any(each.endswith(f"[{name}]") for each in names)]
    groups = [(name,) for name in cases] if request.config.getoption("--apart") else groups_of(cases)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        futures = {
            group: pool.submit(break_and_judge, group, bases[BROKEN[group[0]].base], is_whole=is_whole)
            for group in groups
        }
        broke = {name: Broke(group=group, future=future) for group, future in futures.items() for name in group}
        try:
            yield broke
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        _show(broke)


def _show(broke: dict[str, Broke]) -> None:
    """Print a line for each defect: a mark if exactly its check failed, the defect, and the reason."""
    lines = {name: _report(name, one) for name, one in broke.items()}
    width, what_width = (max(map(len, words), default=0) for words in (lines, [BROKEN[name].what for name in lines]))
    print("\n")
    for name, (good, output) in lines.items():
        print(f"{'✓' if good else '✗'} {name:{width}}  {BROKEN[name].what:{what_width}}  {_cut(output)}")
    count = len({one.group for one in broke.values()})
    print(
        f"{sum(good for good, _ in lines.values())} of {len(lines)} fail exactly their check, in {count} broken images."
    )


def _report(name: str, one: Broke) -> tuple[bool, str]:
    if one.future.cancelled():
        return False, "not judged: the tests ended before"
    if error := one.future.exception():
        return False, f"not judged: {type(error).__name__}: {error}"
    failed = one.future.result().failed
    if wrong := one.wrong(name):
        return False, wrong
    return True, next(reason for check, reason in failed.items() if checks_of([check]) == {name})


def checks_of(failed: Iterable[str]) -> set[str]:
    """Return the names of failed checks, without the suffix that says where a smoke test ran."""
    return {check.partition("[")[0] for check in failed}


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda), "init"])
def test_what_is_not_broken_passes(kind: str, judged: dict[str, dict[str, Any]]) -> None:
    outcomes = {check["id"]: check["outcome"] for check in judged[_ROWS[kind]]["checks"]}
    assert {outcome for name, outcome in outcomes.items() if not name.startswith("smoke.")} == {"passed"}


@pytest.mark.long
def test_what_is_not_broken_passes_as_broken_ones_are_judged(devel: dict[str, Any]) -> None:
    report = judge(devel["ref"], DEVEL)
    assert report.checks, report.log
    assert (report.failed, report.not_run) == ({}, set())


EACH = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.cuda] * (broken.base == "cuda") + [pytest.mark.long] * bool(broken.only))
        for name, broken in BROKEN.items()  # test_payloads.py breaks torch in the same ways
    ],
)


@EACH
def test_it_fails_exactly_its_check(name: str, reports: dict[str, Broke]) -> None:
    one = reports[name]
    assert one.wrong(name) == "", f"of {', '.join(one.group)}\n{one.future.result().log}"


@pytest.mark.long
@EACH
def test_it_fails_no_other_check(name: str, reports: dict[str, Broke]) -> None:
    """The report is of all checks if this test is selected."""
    one = reports[name]
    assert one.wrong(name) == "", f"of {', '.join(one.group)}\n{one.future.result().log}"
    families = {check.id.partition(".")[0] for check in one.future.result().checks}
    assert BROKEN[name].only or len(families) > 1
