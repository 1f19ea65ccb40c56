"""The failures of ranks, and the failure that caused the others."""

import re
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

# Messages of the libraries under torch.distributed in a rank that failed because another rank did.
_BLAMES_ANOTHER = re.compile(
    r"connection (?:closed|reset|was reset|refused) by peer|connection reset|broken pipe|socket closed"
    r"|timed out waiting|wait timeout|timeout\(ms\)|ncclRemoteError|remote process exited|watchdog caught"
    r"|stop_waiting|heartbeat monitor|DistStoreError|DistNetworkError|failed to recv|recv.*failed"
    r"|monitoredBarrier|sendbytes failed|recvvalue failed|timed out after \d+ seconds waiting for clients",
    re.IGNORECASE,
)

_MOST_WITH_WORDS = 64


@dataclass(frozen=True, kw_only=True)
class JobFailure:
    """The failure of a rank; if ``rank`` is None, of a whole node or of an elastic job's torchrun.

    ``code`` is the exit code of a shell: 128 + n for signal n. ``words`` are the last lines of stderr.
    """

    node: int
    code: int
    rank: int | None = None
    local_rank: int | None = None
    why: str = ""
    words: tuple[str, ...] = ()
    told: bool = False  # it ended after a signal to end

    @property
    def consequence(self) -> bool:
        """Return True if another rank's failure is the probable cause."""
        return self.told or self.waited

    @property
    def waited(self) -> bool:
        """Return True if the last lines show that the rank waited for another one."""
        return bool(self.blaming)

    @property
    def blaming(self) -> tuple[str, ...]:
        """The lines which show that the rank waited for another one."""
        return tuple(line for line in self.words if _BLAMES_ANOTHER.search(line))

    @property
    def sentence(self) -> str:
        """One line with the rank or node, and its exit code or reason."""
        rank = f"rank {self.rank} (node {self.node}, local rank {self.local_rank})"
        return f"{f'node {self.node}' if self.rank is None else rank}: {self.why or describe(self.code)}"

    def as_message(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_message(values: dict[str, Any]) -> "JobFailure":
        """Read a failure from a checked message."""
        return JobFailure(**{**values, "words": tuple(values["words"])})


def describe(code: int) -> str:
    """Return ``exit code 7``, or the name of the signal that the code means."""
    if code > 128 and code - 128 in set(signal.Signals):
        return f"ended by {signal.Signals(code - 128).name} (exit code {code})"
    return f"exit code {code}"


class Failures:
    """The known failures in the order of their reports; only the first of each rank or node counts."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, int | None], JobFailure] = {}
        self.cause: JobFailure | None = None

    def add(self, failure: JobFailure) -> bool:
        """Add a failure, and return True if it becomes the cause.

        The cause is the first failure that is not a consequence of another, else the first one. Order alone would name
        the wrong rank: a peer often ends by its broken connection before the failed rank has written its traceback.
        """
        key = failure.node, failure.rank
        if key in self._first:
            return False
        # Thousands of ranks may report the same: of later ones keep only the line that marks a consequence.
        words = failure.words if len(self._first) < _MOST_WITH_WORDS else failure.blaming[:1]
        self._first[key] = replace(failure, words=words)
        if self.cause and (failure.consequence or not self.cause.consequence):
            return False
        self.cause = failure
        return True

    @property
    def hung(self) -> list[int]:
        """The ranks that ended only by a signal: if a peer waited in vain, one of them hangs."""
        signalled = (failure for failure in self._first.values() if failure.told and not failure.waited)
        return sorted({failure.rank for failure in signalled if failure.rank is not None})

    def __bool__(self) -> bool:
        return bool(self._first)

    def __iter__(self) -> Iterator[JobFailure]:
        return iter(self._first.values())
