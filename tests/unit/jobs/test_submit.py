"""A job under any launcher: followed to its end, cancelled, and read again after a failed look."""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.jobs.cases import LEAST
from torchbake.errors import JobError
from torchbake.jobs import submit
from torchbake.jobs.launchers import TIMED_OUT, Check, Command, JobStatus, JobStream, Launcher, Tool
from torchbake.jobs.load import read_job
from torchbake.jobs.model import Job
from torchbake.jobs.submit import CommandResult, ProcessShell, Submission

LOGS = JobStream(name="logs", command=("follow",), again=("--since", "{seconds}s"))
WELL = CommandResult(code=0, stdout="")


@dataclass
class Scripted(Launcher):
    """A launcher whose states come from a list, one for each look."""

    status: list[JobStatus]
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

    def read(self, look: int, output: str) -> JobStatus:
        return self.status.pop(0) if len(self.status) > 1 else self.status[0]

    def cancel(self) -> Sequence[Command]:
        return (("cancel", self.id),)

    def clean(self) -> Sequence[Command]:
        return (("clean", self.id),)


@dataclass
class Render:
    """A follower, which has ended by itself if it was cut off."""

    cut: bool
    is_ended: bool = False

    def poll(self) -> int | None:
        return 0 if self.cut or self.is_ended else None

    def wait(self, timeout: float) -> None:
        if self.poll() is None:
            raise subprocess.TimeoutExpired("follow", timeout)

    def terminate(self) -> None:
        self.is_ended = True


@dataclass
class Watched(Render):
    """A follower during whose wait the user presses Ctrl-C."""

    def wait(self, timeout: float) -> None:
        signal.raise_signal(signal.SIGINT)
        super().wait(timeout)


@dataclass
class Report(ProcessShell):
    """A shell with prepared answers, which records the commands."""

    answers: dict[str, CommandResult] = field(default_factory=dict)
    missing: bool = False
    lacks: str = ""
    cuts: bool = False
    kind: type[Render] = Render
    on: dict[str, Callable[[], None]] = field(default_factory=dict)
    finished: list[Command] = field(default_factory=list)
    followers: list[Render] = field(default_factory=list)

    def finds(self, program: str) -> bool:
        return not self.missing and program != self.lacks

    def ask(self, command: Command, seconds: float) -> CommandResult:
        self.finished.append(command)
        self.on.get(command[0], lambda: None)()
        return self.answers.get(command[0], CommandResult(code=0, stdout="7" if command[0] == "submit" else ""))

    def do(self, command: Command, seconds: float | None) -> int:
        return self.ask(command, seconds or 0).code

    def follow(self, command: Command) -> Render:
        self.finished.append(command)
        self.followers.append(self.kind(self.cuts))
        self.on.get("follow", lambda: None)()
        return self.followers[-1]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOOK", "_SETTLED", "_LAST_WORDS"):
        monkeypatch.setattr(submit, name, 0.01)


def job(more: str = "") -> Job:
    return read_job(LEAST + more, Path("job.yaml"))[0]


def run(shell: Report, *status: JobStatus, more: str = "") -> int:
    return Submission(launcher=Scripted(list(status)), job=job(more), shell=shell).run()


def test_it_is_followed_to_its_end_with_its_code_and_cleaned_up() -> None:
    shell = Report()
    assert run(shell, JobStatus(), JobStatus(streams=(LOGS,)), JobStatus(code=3, streams=(LOGS,))) == 3
    words = [command[0] for command in shell.finished]
    assert words == ["tool", "check", "prepare", "submit", "look", "look", "follow", "look", "clean"]
    assert ("look", "7") in shell.finished
    assert all(follower.is_ended for follower in shell.followers)


def test_a_launcher_is_asked_often_at_first_and_seldom_later(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()
    monkeypatch.setattr(submit, "_LOOK", 2.0)
    monkeypatch.setattr("torchbake.jobs.submit.time.sleep", pauses.append)
    run(Report(), *[JobStatus()] * 40, JobStatus(code=0))
    assert (pauses[0], pauses[-1]) == (0.2, 2.0)
    assert pauses == sorted(pauses)
    assert max(pauses[:8]) < 0.5
    assert pauses.index(2.0) < 30


def test_a_missing_tool_is_one_sentence() -> None:
    shell = Report(missing=True)
    with pytest.raises(JobError, match="the tool is not installed here"):
        run(shell, JobStatus(code=0))
    assert shell.finished == []


def test_a_tool_that_fails_is_no_missing_one() -> None:
    shell = Report(answers={"tool": CommandResult(code=1, stdout="", stderr="tool: libc.so.6 not found\n")})
    with pytest.raises(JobError, match=r"the tool does not work here: .* failed: tool: libc\.so\.6 not found"):
        run(shell, JobStatus(code=0))
    assert [command[0] for command in shell.finished] == ["tool"]


@pytest.mark.usefixtures("own_processes")
def test_a_tool_whose_python_is_gone_does_not_answer(tmp_path: Path) -> None:
    program = tmp_path / "dstack"
    program.write_text("#!/nowhere/python3\n")
    program.chmod(0o755)
    answer = ProcessShell().ask((str(program), "--version"), 10)
    assert (answer.code, answer.last) == (127, f"{program}: No such file or directory")


def test_an_existing_job_is_left_alone() -> None:
    shell = Report(answers={"check": CommandResult(code=0, stdout="It is there already.")})
    with pytest.raises(JobError, match="It is there already"):
        run(shell, JobStatus(code=0))
    assert [command[0] for command in shell.finished] == ["tool", "check"]


@pytest.mark.parametrize("step", ["prepare", "submit"])
def test_a_failed_submission_is_removed(step: str) -> None:
    shell = Report(answers={step: CommandResult(code=1, stdout="", stderr="noise\nerror: no such partition\n")})
    with pytest.raises(JobError, match="failed"):
        run(shell, JobStatus(code=0))
    assert shell.finished[-1][0] == "cancel"


def test_a_refusal_shows_the_message_of_the_tool() -> None:
    with pytest.raises(JobError, match="`submit` failed: error: no such partition"):
        run(
            Report(answers={"submit": CommandResult(code=1, stdout="", stderr="x\nerror: no such partition\n")}),
            JobStatus(),
        )


def test_an_interrupt_cancels_it_there() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    shell = Report(on={"look": interrupt})
    with pytest.raises(KeyboardInterrupt):
        run(shell, JobStatus())
    assert shell.finished[-1] == ("cancel", "7")


@pytest.mark.parametrize("status", [JobStatus(streams=(LOGS,)), JobStatus(code=3, streams=(LOGS,))])
def test_repeated_interrupts_end_followers_and_the_cancellation(status: JobStatus) -> None:
    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    shell = Report(kind=Watched, on={"follow": interrupt, "cancel": interrupt})
    with pytest.raises(KeyboardInterrupt):
        run(shell, status)
    assert shell.finished[-1] == ("cancel", "7")
    assert [follower.is_ended for follower in shell.followers] == [True]


def test_an_interrupt_after_the_end_does_not_stop_the_cleanup() -> None:
    shell = Report(on={"clean": lambda: signal.raise_signal(signal.SIGINT)})
    assert run(shell, JobStatus(code=3, streams=(LOGS,))) == 3


def test_after_its_time_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() * 20)
    shell = Report()
    assert run(shell, JobStatus(), more="timeouts: {job: 1}\n") == TIMED_OUT
    assert ("cancel", "7") in shell.finished


def test_a_launcher_without_an_answer_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    shell = Report()
    answers = iter(
        [CommandResult(code=1, stdout="", stderr="no contact"), WELL, CommandResult(code=1, stdout=""), WELL]
    )
    shell.on["look"] = lambda: shell.answers.update(look=next(answers))
    shell.answers["accounts"] = CommandResult(code=1, stdout="", stderr="no accounts")
    assert run(shell, JobStatus(), JobStatus(code=0)) == 0
    assert capsys.readouterr().err.count("asked for again: no contact") == 1


def test_the_accounts_are_asked_after_the_controller_forgot() -> None:
    shell = Report(answers={"look": CommandResult(code=1, stdout="")})
    assert run(shell, JobStatus(code=5)) == 5
    assert ("accounts", "7") in shell.finished


def test_a_cluster_need_not_have_accounts() -> None:
    shell = Report(lacks="accounts")
    answers = iter([CommandResult(code=1, stdout=""), WELL])
    shell.on["look"] = lambda: shell.answers.update(look=next(answers))
    assert run(shell, JobStatus(code=5)) == 5
    assert ("accounts", "7") not in shell.finished


def test_a_job_without_a_known_state_is_not_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "_PATIENCE", 0.05)
    shell = Report(answers={name: CommandResult(code=1, stdout="") for name in ("look", "accounts")})
    with pytest.raises(JobError, match="may still run"):
        run(shell, JobStatus())
    assert "cancel" not in {command[0] for command in shell.finished}


@pytest.mark.parametrize(("behind", "followers"), [(0.0, [(), ("--since", "1s")]), (60.0, [()])])
def test_a_follower_that_was_cut_off_goes_on_where_it_was(
    behind: float, followers: list[Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not at once: the state of an ended container may be old."""
    monkeypatch.setattr(submit, "_BEHIND", behind)
    shell = Report(cuts=True)
    assert run(shell, JobStatus(streams=(LOGS,)), JobStatus(streams=(LOGS,)), JobStatus(code=0)) == 0
    assert [command[1:] for command in shell.finished if command[0] == "follow"] == followers


def test_notes_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    run(Report(), JobStatus(notes=("it waits",)), JobStatus(notes=("it waits",)), JobStatus(code=0))
    assert capsys.readouterr().err.count("it waits") == 1
