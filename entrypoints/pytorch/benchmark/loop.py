"""The loop that is measured, and its clocks: a mark when a batch's samples are there, one when it is computed."""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

_SAY_SECONDS = 10.0

Batch = tuple[Any, Any]


class Clock(Protocol):
    """Marks moments of the device, and says afterwards how many seconds lie between one and the next."""

    def mark(self) -> None: ...
    def gaps(self) -> list[float]: ...


class HostClock:
    """The clock of a device that has computed when a call returns: the CPU."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        self._marks.append(time.perf_counter())

    def gaps(self) -> list[float]:
        return [after - before for before, after in pairwise(self._marks)]


class EventClock:
    """CUDA events: the GPU itself stamps them on its way, so nothing waits for it between two batches.

    A batch's time is from the end of the one before to its own end, as the GPU sees it: also what it waits for, such
    as samples that are still loaded. ``event`` makes one with timing (torch.cuda.Event).
    """

    def __init__(self, event: Callable[[], Any]) -> None:
        self._event = event
        self._marks: list[Any] = []

    def mark(self) -> None:
        event = self._event()
        event.record()
        self._marks.append(event)

    def gaps(self) -> list[float]:
        self._marks[-1].synchronize()
        return [before.elapsed_time(after) / 1000 for before, after in pairwise(self._marks)]  # it counts milliseconds


@dataclass(frozen=True, kw_only=True)
class Laps:
    """Seconds of each batch, and of these the seconds that it waited for its samples."""

    times: list[float]
    data_times: list[float]


def run(
    clock: Clock,
    batches: Iterator[Batch],
    step: Callable[[Batch], None],
    count: int,
    *,
    what: str = "",
    wait: Callable[[], None] = lambda: None,
) -> Laps:
    """Take ``count`` batches and hand each to ``step``; ``what`` they are is said on stderr while it takes long.

    ``wait`` returns when all ranks may begin. It is the last that is done before the first mark: their times are held
    against one beginning.
    """
    gc.collect()
    gc.freeze()  # what is there by now is looked through at no batch
    wait()
    due = time.perf_counter() + _SAY_SECONDS
    clock.mark()
    for number in range(1, count + 1):
        batch = next(batches)
        clock.mark()
        step(batch)
        clock.mark()
        if what and time.perf_counter() > due:
            print(f"bench: {number} of {count} {what}", file=sys.stderr, flush=True)
            due = time.perf_counter() + _SAY_SECONDS
    gaps = clock.gaps()
    waits, works = gaps[::2], gaps[1::2]
    return Laps(times=[wait + work for wait, work in zip(waits, works, strict=True)], data_times=waits)
