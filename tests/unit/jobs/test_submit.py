"""A job under any launcher: followed to its end, cancelled, and read again after a failed look."""

import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.jobs.cases import LEAST
from torchbake.errors import JobError
from torchbake.jobs import submit
from torchbake.jobs.launchers import TIMED_OUT, Check, Command, Launcher, Seen, Stream, Tool
from torchbake.jobs.load import read_job
from torchbake.jobs.model import Job
from torchbake.jobs.submit import Answer, Processes, Submission

LOGS = Stream(name="logs", command=("follow",), again=("--since", "{seconds}s"))
WELL = Answer(code=0, stdout="")


@dataclass
class Scripted(Launcher):
    """A launcher whose states come from a list, one for each look."""

    seen: list[Seen]
    KEEPS: frozenset[str] = frozenset({"timeouts.job"})
    tools: Sequence[Tool] = (Tool(command=("tool", "--version"), what="the tool"),)
    id: str = ""

    def checks(self) -> Sequence[Check]:
        return (Check(command=("check",), refuse=lambda output: output),)

    def prepare(self) -> Sequence[Command]:
        return (("prepare",),)

    def submit(self) -> Command:
        return ("submit",)

    def submitted(self, output: str) -> None:
        self.id = output

    def looks(self) -> Sequence[Command]:
        return (("look", self.id), ("accounts", self.id))

    def read(self, look: int, output: str) -> Seen:
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    def cancel(self) -> Sequence[Command]:
        return (("cancel", self.id),)

    def clean(self) -> Sequence[Command]:
        return (("clean", self.id),)


@dataclass
class Shown:
    """A follower, which has ended by itself if it was cut off."""

    cut: bool
    ended: bool = False

    def poll(self) -> int | None:
        return 0 if self.cut or self.ended else None

    def wait(self, timeout: float) -> None:
        if self.poll() is None:
            raise subprocess.TimeoutExpired("follow", timeout)

    def terminate(self) -> None:
        self.ended = True


@dataclass
class Watched(Shown):
    """A follower during whose wait the user presses Ctrl-C."""

    def wait(self, timeout: float) -> None:
        signal.raise_signal(signal.SIGINT)
        super().wait(timeout)


@dataclass
class Told(Processes):
    """A shell with prepared answers, which records the commands."""

    answers: dict[str, Answer] = field(default_factory=dict)
    missing: bool = False
    lacks: str = ""
    cuts: bool = False
    kind: type[Shown] = Shown
    on: dict[str, Callable[[], None]] = field(default_factory=dict)
    done: list[Command] = field(default_factory=list)
    followers: list[Shown] = field(default_factory=list)

    def finds(self, program: str) -> bool:
        return not self.missing and program != self.lacks

    def ask(self, command: Command, seconds: float) -> Answer:
        self.done.append(command)
        self.on.get(command[0], lambda: None)()
        return self.answers.get(command[0], Answer(code=0, stdout="7" if command[0] == "submit" else ""))

    def do(self, command: Command, seconds: float | None) -> int:
        return self.ask(command, seconds or 0).code

    def follow(self, command: Command) -> Shown:
        self.done.append(command)
        self.followers.append(self.kind(self.cuts))
        self.on.get("follow", lambda: None)()
        return self.followers[-1]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOOK", "_SETTLED", "_LAST_WORDS"):
        monkeypatch.setattr(submit, name, 0.01)


def job(more: str = "") -> Job:
    return read_job(LEAST + more, Path("job.yaml"))[0]


def run(shell: Told, *seen: Seen, more: str = "") -> int:
    return Submission(launcher=Scripted(list(seen)), job=job(more), shell=shell).run()


def test_it_is_followed_to_its_end_with_its_code_and_cleaned_up() -> None:
    shell = Told()
    assert run(shell, Seen(), Seen(streams=(LOGS,)), Seen(code=3, streams=(LOGS,))) == 3
    words = [command[0] for command in shell.done]
    assert words == ["tool", "check", "prepare", "submit", "look", "look", "follow", "look", "clean"]
    assert ("look", "7") in shell.done
    assert all(follower.ended for follower in shell.followers)


def test_a_missing_tool_is_one_sentence() -> None:
    for shell in (Told(missing=True), Told(answers={"tool": Answer(code=1, stdout="")})):
        with pytest.raises(JobError, match="the tool is not installed here"):
            run(shell, Seen(code=0))
        assert [command[0] for command in shell.done] in ([], ["tool"])


def test_an_existing_job_is_left_alone() -> None:
    shell = Told(answers={"check": Answer(code=0, stdout="It is there already.")})
    with pytest.raises(JobError, match="It is there already"):
        run(shell, Seen(code=0))
    assert [command[0] for command in shell.done] == ["tool", "check"]


@pytest.mark.parametrize("step", ["prepare", "submit"])
def test_a_failed_submission_is_removed(step: str) -> None:
    shell = Told(answers={step: Answer(code=1, stdout="", stderr="noise\nerror: no such partition\n")})
    with pytest.raises(JobError, match="failed"):
        run(shell, Seen(code=0))
    assert shell.done[-1][0] == "cancel"


def test_a_refusal_shows_the_message_of_the_tool() -> None:
    with pytest.raises(JobError, match="`submit` failed: error: no such partition"):
        run(Told(answers={"submit": Answer(code=1, stdout="", stderr="x\nerror: no such partition\n")}), Seen())


def test_an_interrupt_cancels_it_there() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    shell = Told(on={"look": interrupt})
    with pytest.raises(KeyboardInterrupt):
        run(shell, Seen())
    assert shell.done[-1] == ("cancel", "7")


@pytest.mark.parametrize("seen", [Seen(streams=(LOGS,)), Seen(code=3, streams=(LOGS,))])
def test_repeated_interrupts_end_followers_and_the_cancellation(seen: Seen) -> None:
    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    shell = Told(kind=Watched, on={"follow": interrupt, "cancel": interrupt})
    with pytest.raises(KeyboardInterrupt):
        run(shell, seen)
    assert shell.done[-1] == ("cancel", "7")
    assert [follower.ended for follower in shell.followers] == [True]


def test_an_interrupt_after_the_end_does_not_stop_the_cleanup() -> None:
    shell = Told(on={"clean": lambda: signal.raise_signal(signal.SIGINT)})
    assert run(shell, Seen(code=3, streams=(LOGS,))) == 3


def test_after_its_time_it_is_cancelled() -> None:
    shell = Told()
    assert run(shell, Seen(), more="timeouts: {job: 1}\n") == TIMED_OUT
    assert ("cancel", "7") in shell.done


def test_a_launcher_without_an_answer_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    shell = Told()
    answers = iter([Answer(code=1, stdout="", stderr="no contact"), WELL, Answer(code=1, stdout=""), WELL])
    shell.on["look"] = lambda: shell.answers.update(look=next(answers))
    shell.answers["accounts"] = Answer(code=1, stdout="", stderr="no accounts")
    assert run(shell, Seen(), Seen(code=0)) == 0
    assert capsys.readouterr().err.count("asked for again: no contact") == 1


def test_the_accounts_are_asked_after_the_controller_forgot() -> None:
    shell = Told(answers={"look": Answer(code=1, stdout="")})
    assert run(shell, Seen(code=5)) == 5
    assert ("accounts", "7") in shell.done


def test_a_cluster_need_not_have_accounts() -> None:
    shell = Told(lacks="accounts")
    answers = iter([Answer(code=1, stdout=""), WELL])
    shell.on["look"] = lambda: shell.answers.update(look=next(answers))
    assert run(shell, Seen(code=5)) == 5
    assert ("accounts", "7") not in shell.done


def test_a_job_without_a_known_state_is_not_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "_PATIENCE", 0.05)
    shell = Told(answers={name: Answer(code=1, stdout="") for name in ("look", "accounts")})
    with pytest.raises(JobError, match="may still run"):
        run(shell, Seen())
    assert "cancel" not in {command[0] for command in shell.done}


def test_a_follower_that_was_cut_off_goes_on_where_it_was() -> None:
    shell = Told(cuts=True)
    assert run(shell, Seen(streams=(LOGS,)), Seen(streams=(LOGS,)), Seen(code=0)) == 0
    assert [command for command in shell.done if command[0] == "follow"] == [("follow",), ("follow", "--since", "1s")]


def test_notes_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    run(Told(), Seen(notes=("it waits",)), Seen(notes=("it waits",)), Seen(code=0))
    assert capsys.readouterr().err.count("it waits") == 1
