"""The job from its start to its end, on every node alike: it starts as one, and it ends as one."""

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from .contract import Contract
from .failure import Failure, cause_of, hung_of
from .nodes import Nodes
from .ranks import Ranks
from .wire import Message

_POLL = 0.1
OWN_END_SECONDS = 2.0  # after a failure: for the other ranks to say what they saw, and end by themselves
TERM_SECONDS = 2.0  # then between SIGTERM and SIGKILL


class Phase(Enum):
    RUNNING = 1
    FAILING = 2  # a failure is known; ranks are left to end by themselves
    TERMINATING = 3  # SIGTERM is sent
    KILLED = 4


@dataclass(kw_only=True)
class Job:
    """One node's view of the job."""

    contract: Contract
    ranks: Ranks
    nodes: Nodes
    on_end: Callable[[str], None]
    failures: list[Failure] = field(default_factory=list)
    phase: Phase = Phase.RUNNING
    deadline: float = float("inf")
    stopped: int = 0  # the signal that told us to stop
    own_ended: bool = False
    ended_nodes: set[int] = field(default_factory=set)
    verdict: Message | None = None

    def stop(self, number: int, _frame: object = None) -> None:
        """The handler of SIGTERM and SIGINT: pass it on, and end when the ranks have ended."""
        if not self.stopped:
            self.stopped = number

    def follow(self) -> int:
        """Watch until the job has ended everywhere; returns the exit code, the same on every node."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        stop_passed_on = False
        while not self._over():
            ended = self.ranks.ended  # before the poll: what is written until then is seen by it
            self._note(self.ranks.poll())
            if self.stopped and not stop_passed_on:
                stop_passed_on = True
                self._pass_on_stop()
            if ended and not self.own_ended:
                self._note(self.ranks.outcome())
                self._own_end()
            for node, message in self.nodes.poll(_POLL):
                self._hear(node, message)
            if not self.verdict:
                self._note(self._lost())
            self._press_on()
        return self._conclude()

    def _over(self) -> bool:
        if not self.own_ended:
            return False
        if self.contract.is_master:
            return self.ended_nodes | {failure.node for failure in self._lost()} >= set(self.nodes.wires)
        return self.verdict is not None or not self.nodes.wires or bool(self._lost())

    def _lost(self) -> list[Failure]:
        return [lost for lost in self.nodes.lost() if lost.node not in self.ended_nodes]

    def _note(self, failures: list[Failure]) -> None:
        """Remember new failures, and let every node know: they begin to end their ranks too."""
        new = [failure for failure in failures if failure not in self.failures]
        if not new:
            return
        self.failures += new
        self.nodes.tell("failed", failures=[failure.as_message() for failure in new])
        if self.phase is Phase.RUNNING:
            self._enter(Phase.FAILING, OWN_END_SECONDS)

    def _hear(self, node: int, message: Message) -> None:
        if message["kind"] in ("failed", "ended"):
            # Node 0 passes it on; who said it knows it already, and `_note` drops what is known.
            self._note([Failure.from_message(values) for values in message["failures"]])
        if message["kind"] == "ended":
            self.ended_nodes.add(node)
        elif message["kind"] == "verdict":
            self.verdict = message
        elif message["kind"] == "stop" and not self.stopped:
            self.stopped = message["signal"]

    def _pass_on_stop(self) -> None:
        """Told to stop, by a signal here or on another node."""
        self.ranks.signal(self.stopped)
        self.nodes.tell("stop", signal=self.stopped)
        if self.phase in (Phase.RUNNING, Phase.FAILING):
            self._enter(Phase.TERMINATING, self.contract.stop_grace)

    def _press_on(self) -> None:
        """End ranks that do not end by themselves, and a launcher that lingers when they have."""
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
        self.ranks.kill()  # what the scripts have left behind
        self.nodes.tell("ended", failures=[failure.as_message() for failure in self.failures])

    def _conclude(self) -> int:
        """Agree on the cause, say it last, and return its exit code."""
        cause, hung = cause_of(self.failures), hung_of(self.failures)
        if self.verdict:
            cause = Failure.from_message(self.verdict["cause"]) if self.verdict["cause"] else None
            hung = self.verdict["hung"]
        elif self.contract.is_master:
            self.nodes.tell("verdict", cause=cause.as_message() if cause else None, hung=hung)
        self.nodes.close()
        if cause and self.stopped and cause.told:
            name = signal.Signals(self.stopped).name
            print(f"run: stopped by {name}; the ranks ended with {cause.code}.", file=sys.stderr)
        elif cause:
            _say_last(cause, hung)
        return cause.code if cause else 0


def _say_last(cause: Failure, hung: list[int]) -> None:
    """The first failure is the last thing printed, with that rank's own last words."""
    lines = [f"run: the job failed. First: {cause.sentence}."]
    if cause.consequence and hung:
        ranks = ", ".join(map(str, hung))
        lines.append(f"run: it waited for another; rank {ranks} did not end by itself, so perhaps that one hangs.")
    if cause.words:
        lines.append("run: its last words:")
        lines += [f"    {line}" for line in cause.words]
    print("\n".join(lines), file=sys.stderr, flush=True)
