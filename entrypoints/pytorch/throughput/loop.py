"""The measured loop and its clocks: each batch has a mark when its samples are loaded, and one at its end."""

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
    """Marks moments on the device, and returns the seconds between the marks at the end."""

    def mark(self) -> None: ...
    def gaps(self) -> list[float]: ...


class HostClock:
    """The clock of the CPU, where the work is done when a call returns."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        self._marks.append(time.perf_counter())

    def gaps(self) -> list[float]:
        return [after - before for before, after in pairwise(self._marks)]


class EventClock:
    """The clock of a GPU, with CUDA events: the GPU records the times, and the loop does not wait between batches.

    The time of a batch is from the end of the last batch to its end on the GPU. It includes waiting, as for samples.
    ``event`` makes an event with timing (torch.cuda.Event).
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
        return [before.elapsed_time(after) / 1000 for before, after in pairwise(self._marks)]  # from milliseconds


@dataclass(frozen=True, kw_only=True)
class Laps:
    """The seconds of each batch, and the part of them in which it waited for its samples."""

    times: list[float]
    data_times: list[float]


def run(
    clock: Clock, batches: Iterator[Batch], step: Callable[[Batch], None], count: int, *,
    what: str = "", wait: Callable[[], None] = lambda: None,
) -> Laps:  # fmt: skip
    """Call ``step`` with ``count`` batches, and return their times; ``what`` names the batches in progress messages.

    ``wait`` returns when all ranks may start. It is called directly before the first mark, so that all ranks' times
    have a common start.
    """
    gc.collect()
    gc.freeze()  # the garbage collector skips the present objects during the batches
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
