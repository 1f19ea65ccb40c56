"""Work on several things side by side, and an orderly end of all of it."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_LOOK = 0.5  # seconds


def run_all(
    items: Sequence[Item],
    work: Callable[[Item], Result],
    *,
    jobs: int,
    stop: Callable[[], object],
    on_done: Callable[[Item, Future[Result]], object] = lambda *_: None,
) -> list[Result]:
    """Do ``work`` for each item in a thread, at most ``jobs`` side by side; the results, in the order of the items.

    ``on_done`` is called in the caller's thread for each item that is done, in the order in which they end. What
    ``work`` raised, its future raises: there, where ``on_done`` asks it for the result, and else when all are done.

    Whatever is raised in the caller's thread, Ctrl-C too, ends the run: what has not begun is cancelled, ``stop`` is
    called once to end what runs (and what begins in that very moment), and only when all has ended is it raised on.
    """
    ended: SimpleQueue[Future[Result]] = SimpleQueue()
    futures: dict[Future[Result], Item] = {}
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            for item in items:
                future = pool.submit(work, item)
                futures[future] = item
                future.add_done_callback(ended.put)
            for _ in items:
                future = _next(ended)
                on_done(futures[future], future)
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item], *, most: int) -> list[Result]:
    """What ``work`` says of each item, in the order of the items, with at most ``most`` at once.

    What it raises of the first item is raised when all are done.
    """
    with ThreadPoolExecutor(max_workers=most) as pool:
        return list(pool.map(work, items))


def _next(ended: SimpleQueue[Future[Result]]) -> Future[Result]:
    while True:
        # A bounded wait, so that Ctrl-C is seen at once on every platform.
        with contextlib.suppress(Empty):
            return ended.get(timeout=_LOOK)
