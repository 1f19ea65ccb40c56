"""How a rank ended, and which of several ends was the cause of the others."""

import re
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

# What the libraries under torch.distributed print in a rank that failed because another one did.
_BLAMES_ANOTHER = re.compile(
    r"connection (?:closed|reset|was reset|refused) by peer|connection reset|broken pipe|socket closed"
    r"|timed out waiting|wait timeout|timeout\(ms\)|ncclRemoteError|remote process exited|watchdog caught"
    r"|stop_waiting|heartbeat monitor|DistStoreError|DistNetworkError|failed to recv|recv.*failed"
    r"|monitoredBarrier|sendbytes failed|recvvalue failed|timed out after \d+ seconds waiting for clients",
    re.IGNORECASE,
)

_MOST_WITH_WORDS = 64


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A bad end: of a rank (``rank`` is its number), or of a node or an elastic job's torchrun (``rank`` is None).

    ``code`` is as a shell says it: 128 + n for a signal. ``words`` are the last lines of stderr.
    """

    node: int
    code: int
    rank: int | None = None
    local_rank: int | None = None
    why: str = ""
    words: tuple[str, ...] = ()
    told: bool = False  # it ended because it was told to

    @property
    def consequence(self) -> bool:
        """Whether it looks as if another rank had failed before."""
        return self.told or self.waited

    @property
    def waited(self) -> bool:
        """Whether its words say that it waited for another rank."""
        return bool(self.blaming)

    @property
    def blaming(self) -> tuple[str, ...]:
        """The lines that say so."""
        return tuple(line for line in self.words if _BLAMES_ANOTHER.search(line))

    @property
    def sentence(self) -> str:
        """One line: who, how."""
        who = f"rank {self.rank} (node {self.node}, local rank {self.local_rank})"
        if self.rank is None:
            who = f"node {self.node}"
        return f"{who}: {self.why or describe(self.code)}"

    def as_message(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_message(values: dict[str, Any]) -> "Failure":
        """Out of a message that has been checked."""
        return Failure(**{**values, "words": tuple(values["words"])})


def describe(code: int) -> str:
    """``exit code 7``, or the name of the signal behind it."""
    if code > 128:
        try:
            return f"ended by {signal.Signals(code - 128).name} (exit code {code})"
        except ValueError:
            pass
    return f"exit code {code}"


class Failures:
    """All that is known, in the order in which it became known; the first of each rank, or node, counts."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int | None], Failure] = {}
        self.cause: Failure | None = None

    def add(self, failure: Failure) -> bool:
        """Whether this changes the cause.

        The cause is the first that does not look like another's consequence, else the first. Order alone would name
        the wrong rank: a peer whose connection broke is often gone before the rank that broke it has finished
        writing its traceback.
        """
        who = failure.node, failure.rank
        if who in self._known:
            return False
        # Thousands of ranks may say the same: keep what tells a consequence, and forget the rest.
        words = failure.words if len(self._known) < _MOST_WITH_WORDS else failure.blaming[:1]
        self._known[who] = replace(failure, words=words)
        if self.cause and (failure.consequence or not self.cause.consequence):
            return False
        self.cause = failure
        return True

    @property
    def hung(self) -> list[int]:
        """The ranks that ended only because they were told to: where a peer waited in vain, one of them hangs."""
        told = (failure for failure in self._known.values() if failure.told and not failure.waited)
        return sorted({failure.rank for failure in told if failure.rank is not None})

    def __bool__(self) -> bool:
        return bool(self._known)

    def __iter__(self) -> Iterator[Failure]:
        return iter(self._known.values())
