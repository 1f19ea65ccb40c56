"""Parallel work: the reports and their order, and the end of all items after a stop."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from tests.unit.processes import interrupt
from torchbake.core.parallel import read_ahead, run_all

_PATIENCE = 10  # seconds, the timeout of a test
Report = Callable[[str, Future[str]], object]


def wait_for(what: threading.Event) -> None:
    assert what.wait(_PATIENCE), "it never came"


@dataclass
class Bench:
    """Work that records its events. ``during`` has an additional action for each item, by name."""

    during: dict[str, Callable[[], object]] = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    pending: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    begun_at_stop: list[list[str]] = field(default_factory=list)

    def work(self, name: str) -> str:
        self.pending.append(name)
        self.during.get(name, lambda: None)()
        self.ends.append(name)
        return name.upper()

    def hang(self) -> None:
        """As a process does that takes a while to end after it was told to."""
        wait_for(self.stopping)
        time.sleep(0.05)

    def stop(self) -> None:
        self.begun_at_stop.append(list(self.pending))
        self.stopping.set()

    def run(self, names: str, *, jobs: int = 1, on_done: Report = lambda *_: None) -> list[str]:
        return run_all(list(names), self.work, jobs=jobs, stop=self.stop, on_end=on_done)

    def is_over(self, *, start: str) -> bool:
        """It was stopped once, when these had begun, and none of them runs any more, nor did another begin."""
        at_stop = [sorted(names) for names in self.begun_at_stop]
        return at_stop == [list(start)] and sorted(self.ends) == sorted(self.pending) == list(start)


def test_results_have_the_order_of_the_items() -> None:
    """The first one ends last."""
    lines = {name: threading.Event() for name in "abc"}
    bench = Bench(during={"a": lambda: wait_for(lines["b"]), "b": lambda: wait_for(lines["c"])})
    order: list[tuple[str, str]] = []

    def on_done(name: str, future: Future[str]) -> None:
        order.append((name, future.result()))
        lines[name].set()

    assert bench.run("abc", jobs=3, on_done=on_done) == ["A", "B", "C"]
    assert order == [("c", "C"), ("b", "B"), ("a", "A")]
    assert bench.begun_at_stop == []


def test_finished_results_are_reported_in_order_of_their_ends() -> None:
    all_ended, names, lines = threading.Event(), "abcdefghijkl", []
    bench = Bench(during={names[-1]: all_ended.set})

    def on_done(name: str, _: object) -> None:
        wait_for(all_ended)
        lines.append(name)

    bench.run(names, on_done=on_done)
    assert lines == list(names)


def test_who_is_told_is_told_in_the_callers_thread() -> None:
    threads: list[threading.Thread] = []
    Bench().run("abc", jobs=3, on_done=lambda *_: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()] * 3


def test_as_many_run_side_by_side_as_may_and_no_more() -> None:
    # The barrier opens for three at a time: with fewer it breaks, and the fourth would be counted.
    barrier, lock, now, most = threading.Barrier(3, timeout=_PATIENCE), threading.Lock(), 0, 0

    def work(_: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        barrier.wait()
        time.sleep(0.01)
        with lock:
            now -= 1

    run_all(range(9), work, jobs=3, stop=lambda: None)
    assert most == 3


def test_nothing_to_do_is_done() -> None:
    assert Bench().run("") == []


def fail() -> None:
    raise ValueError("the second one")


def test_an_unread_failure_of_an_item_lets_the_others_end() -> None:
    bench, failures = Bench(during={"b": fail}), {}

    def on_done(name: str, future: Future[str]) -> None:
        failures[name] = future.exception()

    with pytest.raises(ValueError, match="the second one"):
        bench.run("abcd", on_done=on_done)
    assert bench.ends == ["a", "c", "d"]
    assert [name for name, error in failures.items() if error] == ["b"]
    assert len(bench.begun_at_stop) == 1


def test_a_failure_that_is_read_ends_the_run() -> None:
    bench, results, third = Bench(), [], threading.Event()

    def hang() -> None:
        third.set()
        bench.hang()

    def on_done(_: str, future: Future[str]) -> None:
        if future.exception():
            wait_for(third)
        results.append(future.result())

    bench.during = {"b": fail, "c": hang}
    with pytest.raises(ValueError, match="the second one"):
        bench.run("abcd", on_done=on_done)
    assert results == ["A"]
    assert (bench.begun_at_stop, bench.pending) == ([["a", "b", "c"]], ["a", "b", "c"])
    assert bench.ends == ["a", "c"], "it was not waited for"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError])
def test_what_is_raised_by_who_is_told_ends_the_run(error: type[BaseException]) -> None:
    bench, second = Bench(), threading.Event()

    def hang() -> None:
        second.set()
        bench.hang()

    def on_done(*_: object) -> None:
        wait_for(second)
        raise error

    bench.during = {"b": hang}
    with pytest.raises(error):
        bench.run("abcd", on_done=on_done)
    assert bench.is_over(start="ab")


def test_an_interruption_keeps_results_and_starts_no_more() -> None:
    bench, results, first, both = Bench(), [], threading.Event(), threading.Barrier(2, timeout=_PATIENCE)

    def on_done(_: str, future: Future[str]) -> None:
        results.append(future.result())
        first.set()

    def during() -> None:
        wait_for(first)
        if both.wait() == 0:
            interrupt()
        bench.hang()

    bench.during = dict.fromkeys("bc", during)
    with pytest.raises(KeyboardInterrupt):
        bench.run("abcde", jobs=2, on_done=on_done)
    assert results == ["A"]
    assert bench.is_over(start="abc")


def test_a_second_interruption_still_waits_for_running_items() -> None:
    bench, first = Bench(), threading.Event()

    def during() -> None:
        wait_for(first)
        interrupt()
        bench.hang()

    def stop() -> None:
        bench.stop()
        raise KeyboardInterrupt("the second one")

    bench.during = {"b": during}
    with pytest.raises(KeyboardInterrupt, match="the second one"):
        run_all(list("abc"), bench.work, jobs=1, stop=stop, on_end=lambda *_: first.set())
    assert bench.is_over(start="ab")


def test_items_are_taken_ahead_in_their_order_and_no_further() -> None:
    numbers = list[int]()

    def items() -> Iterator[int]:
        for number in range(20):
            numbers.append(number)
            yield number

    with read_ahead(items(), most=3) as ahead:
        assert next(ahead) == 0
        time.sleep(0.2)
        assert len(numbers) in (4, 5)  # one is given, three wait, and the next may be in the thread's hand
        assert [*ahead] == [*range(1, 20)]
        assert next(ahead, "end") == "end"


def test_an_error_of_who_makes_the_items_comes_after_them() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with read_ahead(items(), most=3) as ahead:
        assert next(ahead) == 1
        with pytest.raises(OSError, match="gone"):
            next(ahead)


def test_who_stops_early_ends_the_other_thread() -> None:
    before = threading.active_count()
    with read_ahead(iter(range(10**9)), most=2) as ahead:
        next(ahead)
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.05)
    assert threading.active_count() == before
