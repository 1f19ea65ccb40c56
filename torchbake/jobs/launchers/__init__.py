"""Launchers that `job run` submits to: the commands of each step, and the readers of their answers. Pure.

Commands are data; `torchbake/jobs/submit.py` starts them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Command = tuple[str, ...]
TIMED_OUT = 124  # the exit code of `timeout`


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A required program: the command that tests it, and its name in messages."""

    command: Command
    what: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check before the submission: ``refuse`` reads the command's output and returns why the job cannot start."""

    command: Command
    refuse: Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """An output stream of a job, and the command that follows it.

    If the follower ends while ``running`` is true, it was cut off. The command then resumes with the arguments
    ``again``, in which ``{seconds}`` is the length of the gap.
    """

    name: str
    command: Command
    running: bool = True
    again: Command = ()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The state of a job. ``code`` is None until the job has ended. ``notes`` are shown to the user, each once."""

    code: int | None = None
    streams: Sequence[Stream] = ()
    notes: Sequence[str] = ()


class Launcher(Protocol):
    """The interface of a launcher, for one job."""

    @property
    def KEEPS(self) -> frozenset[str]:  # noqa: N802 - a constant of each
        """The keys that the target cannot express, but `job run` implements itself."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    def checks(self) -> Sequence[Check]: ...

    def prepare(self) -> Sequence[Command]:
        """Return commands before the submission that take long, and can be interrupted."""

    def submit(self) -> Command: ...

    def submitted(self, output: str) -> None:
        """Read the output of `submit`. Raises JobError if it is no answer."""

    def looks(self) -> Sequence[Command]:
        """Return commands that print the state of the job; the first that succeeds counts."""

    def read(self, look: int, output: str) -> Seen:
        """Read the output of the command of `looks` with that number. Raises ValueError or LookupError."""

    def cancel(self) -> Sequence[Command]:
        """Return commands that end the job, wait for its end, and remove everything but the data of volumes."""

    def clean(self) -> Sequence[Command]:
        """Return commands that remove everything of an ended job but the data of volumes."""
