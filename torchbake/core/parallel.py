"""Do work in parallel threads, and end all of it in order after an error or Ctrl-C."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, Full, Queue, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_LOOK = 0.5  # seconds


def run_all(
    items: Sequence[Item], work: Callable[[Item], Result], *, jobs: int, stop: Callable[[], object],
    on_end: Callable[[Item, Future[Result]], object] = lambda *_: None,
) -> list[Result]:  # fmt: skip
    """Call ``work`` for each item, at most ``jobs`` in parallel; return the results in the order of the items.

    ``on_end`` is called in the caller's thread for each finished item. An exception of ``work`` is raised when
    ``on_end`` reads the future's result, or else after the last item.

    An exception in the caller's thread, also Ctrl-C, ends the run. Items that have not begun are cancelled, ``stop`` is
    called once to end the others, and the exception is raised again after the last of them has ended.
    """
    end: SimpleQueue[Future[Result]] = SimpleQueue()
    futures: dict[Future[Result], Item] = {}
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            for item in items:
                future = pool.submit(work, item)
                futures[future] = item
                future.add_done_callback(end.put)
            for _ in items:
                while True:
                    with contextlib.suppress(Empty):
                        future = end.get(timeout=_LOOK)  # bounded, so that Ctrl-C interrupts it on every platform
                        break
                on_end(futures[future], future)
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item], *, most: int) -> list[Result]:
    """Call ``work`` for each item, at most ``most`` in parallel; return the results in the order of the items.

    The exception of the first item that failed is raised after the last item.
    """
    with ThreadPoolExecutor(max_workers=most) as pool:
        return list(pool.map(work, items))


@contextlib.contextmanager
def read_ahead(items: Iterable[Item], *, most: int) -> Iterator[Iterator[Item]]:
    """Yield an iterator over items that another thread takes, at most ``most`` ahead.

    An exception of that thread is raised to whoever takes the next item. The thread ends soon after the block.
    """
    queue, over = Queue[tuple[list[Item], BaseException | None]](most), threading.Event()

    def put(batch: list[Item], error: BaseException | None = None) -> None:
        while not over.is_set():
            with contextlib.suppress(Full):
                queue.put((batch, error), timeout=_LOOK)
                return

    def take() -> None:
        try:
            for item in items:
                put([item])
                if over.is_set():
                    return
            put([])
        except BaseException as error:
            put([], error)

    def received() -> Iterator[Item]:
        while True:
            batch, error = queue.get()
            if error:
                raise error
            if not batch:
                return
            yield from batch

    threading.Thread(target=take, daemon=True).start()
    try:
        yield received()
    finally:
        over.set()
