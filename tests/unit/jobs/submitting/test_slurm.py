"""The output of Slurm's tools about a job is read as its state, and as its exit code."""

from pathlib import Path

import pytest

from entrypoints.pytorch.launch.launch_error import Code
from tests.unit.jobs.cases import task_of, text_of
from torchbake.errors import JobError
from torchbake.jobs.launchers.slurm import SlurmLauncher, code_of

# The output of scontrol 24.11 on one line, without fields that are not read.
LINE = (
    "JobId=7 JobName=mnist UserId=ann(1500) GroupId=ann(1500) MCS_label=N/A Priority=1 JobState={state} "
    "Reason={reason} Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code} "
    "RunTime=00:00:09 TimeLimit=00:05:00 Partition=debug DerivedExitCode=9:0 StdErr=/home/ann/slurm-7.out "
    "StdIn=/dev/null StdOut=/home/ann/slurm-7.out\n"
)


@pytest.fixture
def slurm() -> SlurmLauncher:
    launcher = SlurmLauncher(task_of(text_of("ddp")), Path("/tmp/x/mnist"), "")
    launcher.submitted("7\n")
    return launcher


def line(state: str, code: str = "0:0", reason: str = "None") -> str:
    return LINE.format(state=state, code=code, reason=reason)


@pytest.mark.parametrize(
    ("output", "words"),
    [("7\n", ("7",)), ("7;east\n", ("--clusters", "east", "7")), ("welcome to the site\n7\n", ("7",))],
)
def test_the_jobs_number_and_its_cluster_are_read(output: str, words: tuple[str, ...]) -> None:
    launcher = SlurmLauncher(task_of(text_of("ddp")), Path("mnist"), "")
    assert launcher.cancel() == ()  # nothing has been submitted
    launcher.submitted(output)
    assert launcher.cancel()[0] == ("scancel", *words)
    with pytest.raises(JobError, match="printed no job number"):
        launcher.submitted("queue full")


def test_the_controller_says_how_it_ends(slurm: SlurmLauncher) -> None:
    for state, code, expected in (
        ("PENDING", "0:0", None),
        ("RUNNING", "0:0", None),
        ("COMPLETING", "3:0", None),
        ("SUSPENDED", "0:0", None),
        ("COMPLETED", "0:0", 0),
        ("FAILED", "3:0", 3),
        ("FAILED", "0:9", 137),
        ("CANCELLED", "0:15", 143),
        ("CANCELLED", "0:0", 130),
        ("TIMEOUT", "0:0", 124),
        ("OUT_OF_MEMORY", "0:125", 253),
        ("NODE_FAIL", "0:1", Code.NODE_LOST),
        ("BOOT_FAIL", "0:0", 1),
    ):
        assert slurm.read(0, line(state, code)).code == expected, state


def test_the_accounts_say_it_when_the_controller_has_forgotten(slurm: SlurmLauncher) -> None:
    assert slurm.read(1, "CANCELLED by 1500|0:15\n").code == 143
    assert slurm.read(1, "FAILED|3:0\n").code == 3
    with pytest.raises(LookupError):
        slurm.read(1, "")
    with pytest.raises(LookupError):
        slurm.read(0, "slurm_load_jobs error: Invalid job id specified")


def test_its_output_is_shown_once_it_has_begun(slurm: SlurmLauncher) -> None:
    assert slurm.read(0, line("PENDING", reason="Resources")).streams == ()
    (stream,) = slurm.read(0, line("RUNNING")).streams
    assert stream.command[-1] == stream.name == "/home/ann/slurm-7.out"
    assert slurm.read(1, "FAILED|3:0\n").streams == (stream,)


def test_what_it_waits_for_is_told(slurm: SlurmLauncher) -> None:
    assert slurm.read(0, line("PENDING", reason="Resources")).notes == ["job 7 PENDING: Resources"]
    assert slurm.read(0, line("RUNNING")).notes == ["job 7 RUNNING"]


def test_a_good_end_is_0_whatever_a_step_said() -> None:
    assert code_of("COMPLETED", "0:0") == 0
