"""Launchers that `job run` submits to: the commands of each step, and the readers of their answers. Pure.

Commands are data; `torchbake/jobs/submit.py` starts them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchbake.jobs.task import Task

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
class JobStream:
    """An output stream of a job, and the command that follows it.

    If the follower ends while ``running`` is true, it was cut off. The command then resumes with the arguments
    ``again``, in which ``{seconds}`` is the length of the gap.
    """

    name: str
    command: Command
    running: bool = True
    again: Command = ()


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The state of a job. ``code`` is None until the job has ended. ``notes`` are shown to the user, each once."""

    code: int | None = None
    streams: Sequence[JobStream] = ()
    notes: Sequence[str] = ()


class Launcher(ABC):
    """A launcher, for one job."""

    KEEPS: frozenset[str] = frozenset()  # keys that the target cannot express, but `job run` implements itself
    tools: Sequence[Tool] = ()

    @abstractmethod
    def __init__(self, task: Task, manifest: Path, text: str) -> None: ...

    def checks(self) -> Sequence[Check]:
        return ()

    def prepare(self) -> Sequence[Command]:
        """Return commands before the submission that take long, and can be interrupted."""
        return ()

    @abstractmethod
    def submit(self) -> Command: ...

    def submitted(self, output: str) -> None:  # noqa: B027 - most launchers know the job's name before
        """Read the output of `submit`. Raises JobError if it is no answer."""

    @abstractmethod
    def looks(self) -> Sequence[Command]:
        """Return commands that print the state of the job; the first that succeeds counts."""

    @abstractmethod
    def read(self, look: int, output: str) -> JobStatus:
        """Read the output of the command of `looks` with that number. Raises ValueError or LookupError."""

    @abstractmethod
    def cancel(self) -> Sequence[Command]:
        """Return commands that end the job, wait for its end, and remove everything but the data of volumes."""

    def clean(self) -> Sequence[Command]:
        """Return commands that remove everything of an ended job but the data of volumes."""
        return self.cancel()
