"""Launchers that a job can be submitted to: what to start for each step, and what is read out of the answers. Pure.

Commands are data; `torchbake/jobs/submit.py` starts them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Command = tuple[str, ...]
TIMED_OUT = 124  # as of `timeout`


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A program that must be there: what tries it, and what it is to a reader."""

    command: Command
    what: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """Looks before anything is made; ``refuse`` reads from what was said why the job cannot be submitted."""

    command: Command
    refuse: Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """What can be shown of a job: a command that follows it. ``again`` are words that it takes to go on after a break.

    ``running``: it has not ended yet, so that a follower that ended was cut off. ``{seconds}`` in ``again`` is for how
    long.
    """

    name: str
    command: Command
    running: bool = True
    again: Command = ()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A job, as one look shows it. ``code`` is None until it has ended; ``notes`` are for a person, each once."""

    code: int | None = None
    streams: Sequence[Stream] = ()
    notes: Sequence[str] = ()


class Launcher(Protocol):
    """One job under one launcher."""

    @property
    def KEEPS(self) -> frozenset[str]:  # noqa: N802 - a constant of each
        """Keys that the target cannot express, and that following the job takes care of."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    def checks(self) -> Sequence[Check]: ...

    def prepare(self) -> Sequence[Command]:
        """What takes long before the submission, and can be interrupted."""

    def submit(self) -> Command: ...

    def submitted(self, said: str) -> None:
        """Reads what `submit` said. Raises JobError where that is not an answer."""

    def looks(self) -> Sequence[Command]:
        """How to look at the job; the first that succeeds counts."""

    def read(self, look: int, said: str) -> Seen:
        """What the look of that number says. Raises ValueError or LookupError where it cannot be read."""

    def cancel(self) -> Sequence[Command]:
        """What ends the job, waits for that, and leaves nothing but the data of volumes."""

    def clean(self) -> Sequence[Command]:
        """What removes the rest of a job that has ended, likewise."""
