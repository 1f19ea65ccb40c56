"""The supervision of a job on one node: when a rank fails anywhere, all nodes end with the same exit code."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from .advice import advice_at_exit
from .contract import Contract
from .failure import Failures, JobFailure
from .log import join_numbers, printable, say
from .messages import Message
from .nodes import Alarm, NodeConnections
from .ranks import RankProcesses

_POLL = 0.1
OWN_END_SECONDS = 2.0  # after a failure: for the other ranks to end by themselves and report
TERM_SECONDS = 2.0  # then between SIGTERM and SIGKILL


class Phase(Enum):
    RUNNING = 1
    FAILING = 2  # a failure is known; ranks are left to end by themselves
    TERMINATING = 3  # SIGTERM is sent
    KILLED = 4


@dataclass(kw_only=True)
class Supervisor:
    """One node's view of the job."""

    contract: Contract
    ranks: RankProcesses
    nodes: NodeConnections
    on_end: Callable[[str], None]
    failures: Failures = field(default_factory=Failures)
    phase: Phase = Phase.RUNNING
    deadline: float = float("inf")
    stopped: int = 0  # the signal that stops the job
    own_ended: bool = False
    ended_nodes: set[int] = field(default_factory=set)
    finish_times: dict[int, float] = field(default_factory=dict)  # the ranks that ended with 0, and when
    verdict: Message | None = None

    def stop(self, number: int, _frame: object = None) -> None:
        """Handle SIGTERM and SIGINT: the signal is passed on, and `run` ends when the ranks have ended."""
        if not self.stopped:
            self.stopped = number

    def follow(self) -> int:
        """Watch until the job has ended on all nodes; return the exit code, the same on every node."""
        with Alarm() as alarm:
            self.nodes.heed(alarm)
            self._watch()
        return self._conclude()

    def _watch(self) -> None:
        stop_passed_on = False
        while not self._over():
            is_over = (
                self.ranks.all_finished
            )  # read before the poll, which then receives all messages of the ended ranks
            self._note(self.ranks.poll())
            self._note_finished()
            if self.stopped and not stop_passed_on:
                stop_passed_on = True
                self._pass_on_stop()
            if is_over and not self.own_ended:
                self._note(self.ranks.outcome())
                self._own_end()
            if not self.own_ended and self.contract.stopped_timeout:
                # Once ranks fail, a stopped process is probably the cause.
                self._note(self.ranks.stop(self.contract.stopped_timeout if self.phase is Phase.RUNNING else 0))
            for node, message in self.nodes.poll(0 if self._over() else _POLL):
                self._hear(node, message)
            if not self.verdict:
                self._note(self._lost())
            self._press_on()

    def _over(self) -> bool:
        if not self.own_ended:
            return False
        if self.contract.is_master:
            return len(self.ended_nodes | {failure.node for failure in self._lost()}) >= len(self.nodes.others)
        return self.verdict is not None or not self.nodes.others or bool(self._lost())

    def _lost(self) -> list[JobFailure]:
        return [failure for failure in self.nodes.lost() if failure.node not in self.ended_nodes]

    def _note(self, failures: list[JobFailure]) -> None:
        """Add new failures and report them, so that all nodes end their ranks.

        Node 0 receives every failure. It sends the others only the failures that become the cause.
        """
        for failure in failures:
            changed = self.failures.add(failure)
            if changed or (failure.node == self.contract.node_rank and not self.contract.is_master):
                self.nodes.tell("failed", failure=failure.as_message())
        if self.failures and self.phase is Phase.RUNNING:
            self._enter(Phase.FAILING, OWN_END_SECONDS)

    def _note_finished(self) -> None:
        """Note the ranks that ended with 0, which may explain why other ranks wait."""
        for rank in self.ranks.finished_ranks:
            if rank not in self.finish_times:
                self.finish_times[rank] = time.monotonic()
                if not self.contract.is_master:
                    self.nodes.tell("done", rank=rank)

    def _hear(self, node: int, message: Message) -> None:
        kind = message["kind"]
        if kind == "failed":
            failure = JobFailure.from_message(message["failure"])
            if node in (0, failure.node):  # a node reports its own failures, and node 0 those of all
                self._note([failure])
        elif kind == "done" and node == message["rank"] // self.contract.nproc_per_node:
            self.finish_times.setdefault(message["rank"], time.monotonic())
        elif kind == "ended" and self.contract.is_master:
            self.ended_nodes.add(node)
        elif kind == "verdict" and node == 0:
            self.verdict = message
        elif kind == "stop" and not self.stopped:
            self.stopped = message["signal"]

    def _pass_on_stop(self) -> None:
        self.ranks.signal(self.stopped)
        self.nodes.tell("stop", signal=self.stopped)
        if self.phase in (Phase.RUNNING, Phase.FAILING):
            self._enter(Phase.TERMINATING, self.contract.stop_grace)

    def _press_on(self) -> None:
        """End ranks that do not end by themselves, and a torchrun that runs on after its ranks."""
        if self.phase in (Phase.FAILING, Phase.TERMINATING) and not self.own_ended and self.ranks.all_over:
            self._enter(Phase.KILLED, float("inf"))
            self.ranks.kill()
            return
        if time.monotonic() < self.deadline or self.own_ended:
            return
        if self.phase is Phase.FAILING:
            self.ranks.signal(signal.SIGTERM)
            self._enter(Phase.TERMINATING, TERM_SECONDS)
        elif self.phase is Phase.TERMINATING:
            self.ranks.kill()
            self._enter(Phase.KILLED, float("inf"))

    def _enter(self, phase: Phase, seconds: float) -> None:
        self.phase, self.deadline = phase, time.monotonic() + seconds
        self.on_end("stopping" if self.stopped else "a rank failed")

    def _own_end(self) -> None:
        self.own_ended = True
        self.ranks.kill()  # processes that the scripts have left behind
        self.nodes.tell("ended")

    def _conclude(self) -> int:
        """Agree on the cause with the other nodes, log it, and return its exit code."""
        cause, notes = self.failures.cause, self._notes()
        if self.verdict:
            cause = JobFailure.from_message(self.verdict["cause"]) if self.verdict["cause"] else None
            notes = self.verdict["notes"]
        elif self.contract.is_master:
            self.nodes.tell("verdict", cause=cause.as_message() if cause else None, notes=notes)
        self.nodes.close()
        if cause and self.stopped and cause.told:
            say(f"run: stopped by {signal.Signals(self.stopped).name}; the ranks ended with {cause.code}.")
        elif cause:
            words = ["run: its last lines:", *(f"    {printable(word)}" for word in cause.words)] if cause.words else []
            say(f"run: the job failed. First: {cause.sentence}.", *(f"run: {note}" for note in notes), *words)
        return cause.code if cause else 0

    def _notes(self) -> list[str]:
        """Return the next step for the cause; if it waited for another rank, the ranks that it may have waited for."""
        cause = self.failures.cause
        advice = advice_at_exit(cause.code, cause.words) if cause else ""
        if not cause or advice or not cause.waited:
            return [advice] if advice else []
        notes = []
        if early := sorted(self.finish_times):
            ago = time.monotonic() - max(self.finish_times.values())
            has = "has" if len(early) == 1 else "have"
            notes.append(
                f"it waited for another; {join_numbers('rank', early)} {has} ended with 0 before, {ago:.0f} s ago: "
                "do all ranks take the same number of steps?"
            )
        if hung := self.failures.hung:
            notes.append(
                f"it waited for another; {join_numbers('rank', hung)} did not end by itself, so perhaps that one hangs."
            )
        return notes
