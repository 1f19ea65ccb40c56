"""Submits a job to a launcher, shows its output, and returns its exit code. Ctrl-C and SIGTERM cancel the job."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Protocol

from torchbake.core.plain_text import last_line
from torchbake.core.signals import interrupted_once, to_its_end
from torchbake.errors import JobError
from torchbake.jobs.launchers import TIMED_OUT, Command, JobStatus, JobStream, Launcher
from torchbake.jobs.model import Job
from torchbake.jobs.task import grace_of
from torchbake.ui import console

# Seconds between two looks at the job: at first and at most; and for an answer of the launcher.
_FIRST_LOOK, _LOOK, _ANSWERING = 0.2, 2.0, 120.0
# Seconds for which a node may still report a container as running that has ended: a kubelet looks once a second.
_BEHIND = 3.0
# Seconds without an answer until the submission gives up. A controller may be under maintenance.
_PATIENCE = 3600.0
# Seconds for a follower to show the last output, and for a follower that never ends by itself.
_LAST_WORDS, _SETTLED = 15.0, 2.0
# Seconds for the launcher to end a job, beyond the job's own time.
_MORE = 120.0
_NOT_STARTED = 127  # the exit code of a shell for a program that it cannot start


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    code: int
    stdout: str
    stderr: str = ""

    @property
    def last(self) -> str:
        """The last line that is not empty."""
        return last_line(self.stderr.strip() or self.stdout)


class Follower(Protocol):
    """A process that shows the output of a job."""

    def poll(self) -> int | None: ...

    def wait(self, timeout: float) -> object: ...

    def terminate(self) -> None: ...


class ProcessShell:
    """Starts each command in a new session, so that Ctrl-C reaches only torchbake, which ends the commands in order."""

    def finds(self, program: str) -> bool:
        return shutil.which(program) is not None

    def ask(self, command: Command, seconds: float) -> CommandResult:
        try:
            process = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds,
                check=False, start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return CommandResult(
                code=TIMED_OUT, stdout="", stderr=f"{command[0]} did not answer within {seconds:.0f} s"
            )
        except OSError as error:  # the interpreter of a script is gone
            return CommandResult(code=_NOT_STARTED, stdout="", stderr=f"{command[0]}: {error.strerror}")
        return CommandResult(code=process.returncode, stdout=process.stdout, stderr=process.stderr)

    def do(self, command: Command, seconds: float | None) -> int:
        """Run a command that shows its output, and return its exit code."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LAST_WORDS)
            if process.poll() is None:
                process.kill()

    def follow(self, command: Command) -> Follower:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


class _LostError(JobError):
    """The launcher no longer answers, and the job may still run."""


@dataclass(kw_only=True)
class Submission:
    """A job that is submitted to a launcher."""

    launcher: Launcher
    job: Job
    shell: ProcessShell = field(default_factory=ProcessShell)
    _followers: dict[str, tuple[JobStream, Follower, float]] = field(default_factory=dict, init=False)
    _notes: set[str] = field(default_factory=set, init=False)

    def run(self) -> int:
        """Run the job to its end and return its exit code.

        Raises JobError if the launcher is not installed or does not take the job.
        """
        self._check()
        with interrupted_once(lambda: console.say("still ending the job …")) as ignore_interrupts:
            try:
                self._submit()
                code = self._watch()
                ignore_interrupts()  # here, since an interrupt in `finally` would no longer cancel the job
            except BaseException as error:
                ignore_interrupts()
                if not isinstance(error, _LostError):
                    self._cancel()
                raise
            finally:
                self._end_followers(_SETTLED)
            for command in self.launcher.clean():
                self.shell.do(command, grace_of(self.job) + _MORE)
        return code

    def _check(self) -> None:
        for tool in self.launcher.tools:
            hint = "Install it, or run this on a machine that has it."
            if not self.shell.finds(tool.command[0]):
                raise JobError(f"{tool.what} is not installed here: there is no {tool.command[0]} in PATH.", hint=hint)
            answer = self.shell.ask(tool.command, _ANSWERING)
            if answer.code:
                words = " ".join(tool.command)
                raise JobError(f"{tool.what} does not work here: `{words}` failed: {answer.last}", hint=hint)
        for check in self.launcher.checks():
            why = check.refuse(self._answer(check.command))
            if why:
                raise JobError(why, hint="Or give the job another name.")

    def _submit(self) -> None:
        for command in self.launcher.prepare():
            if self.shell.do(command, None):
                raise JobError(f"`{' '.join(command[:2])}` failed.", hint="Its output is above.")
        with to_its_end():  # the answer names the job, which a cancellation needs
            self.launcher.submitted(self._answer(self.launcher.submit()))

    def _answer(self, command: Command) -> str:
        answer = self.shell.ask(command, _ANSWERING)
        if answer.code:
            raise JobError(f"`{' '.join(command[:2])}` failed: {answer.last}")
        return answer.stdout

    def _watch(self) -> int:
        limit = self.job.timeouts.job if "timeouts.job" in self.launcher.KEEPS else None
        start = seen_at = time.monotonic()
        pause = _FIRST_LOOK
        while True:
            status = self._look()
            if status:
                seen_at = time.monotonic()
                for note in status.notes:
                    self._note(note)
                with to_its_end():  # an interrupt between start and entry would leave a follower behind
                    self._follow(status)
            elif time.monotonic() - seen_at > _PATIENCE:
                raise _LostError(
                    "The launcher no longer answers, and the job may still run.",
                    hint="Look at it with the launcher's own commands.",
                )
            if status and status.code is not None:
                self._end_followers(_LAST_WORDS)
                return status.code
            if limit and time.monotonic() - start > limit:
                self._note(f"the job did not end within {limit} s, and is stopped")
                self._cancel()
                return TIMED_OUT
            time.sleep(min(pause, _LOOK))
            pause *= 1.1  # most jobs begin at once or much later

    def _look(self) -> JobStatus | None:
        """Return the state of the job; None if it cannot be read now."""
        why = ""
        for number, command in enumerate(self.launcher.looks()):
            if not self.shell.finds(command[0]):  # a cluster without accounts need not have their command
                continue
            answer = self.shell.ask(command, _ANSWERING)
            why = why or answer.last
            if answer.code == 0:
                with contextlib.suppress(ValueError, LookupError, TypeError):
                    return self.launcher.read(number, answer.stdout)
        self._note(f"the job's state cannot be read now, and is asked for again: {why}")
        return None

    def _follow(self, status: JobStatus) -> None:
        now = time.monotonic()
        for stream in status.streams:
            known_names = self._followers.get(stream.name)
            if known_names is None:
                self._followers[stream.name] = stream, self.shell.follow(stream.command), now
            elif stream.running and stream.again and known_names[1].poll() is not None:
                if now - known_names[2] < _BEHIND:
                    continue  # its container may have ended too, and would show its last lines twice
                again = tuple(word.format(seconds=int(now - known_names[2]) + 1) for word in stream.again)
                self._followers[stream.name] = stream, self.shell.follow((*stream.command, *again)), now
            elif stream.running and known_names[1].poll() is None:
                self._followers[stream.name] = stream, known_names[1], now

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.add(text)
            console.say(text, style="yellow")

    def _end_followers(self, seconds: float) -> None:
        """End all followers. Followers that end with the job get ``seconds`` to show its last output."""
        for stream, follower, _ in self._followers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                follower.wait(seconds if stream.again else _SETTLED)
            if follower.poll() is None:
                follower.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    follower.wait(_SETTLED)

    def _cancel(self) -> None:
        console.say(
            f"cancelling {self.job.name}; its nodes get {grace_of(self.job)} s to save and end …", style="yellow"
        )
        for command in self.launcher.cancel():
            if self.shell.do(command, grace_of(self.job) + _MORE):
                console.say(f"`{' '.join(command)}` failed: check what is left", style="yellow")
