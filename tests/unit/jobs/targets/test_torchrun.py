"""Properties of a script for bare hosts besides its contract."""

import shlex

import pytest

from tests.job_scripts import FOLDER, HOSTILE
from tests.job_scripts import task_of as hostile
from tests.unit.jobs.cases import LEAST, job_of, task_of, text_of
from tests.unit.jobs.launchers import of_torchrun
from torchbake.jobs.expressible import unsupported_keys
from torchbake.jobs.targets import torchrun

BARE = "name: a\nimage: b:1\nscript: c.py\n"


def last(text: str) -> str:
    return torchrun.render(task_of(text)).splitlines()[-1]


def test_exec_of_one_program_returns_the_exit_code_of_the_script() -> None:
    assert last(LEAST + "nodes: 2\nargs: [-x]") == 'exec "${TORCHRUN:-torchrun}" train.py -x'
    assert last(LEAST) == 'exec "${PYTHON:-python3}" train.py'
    assert last(text_of("torchrun")) == "exec torchrun train.py --lr '$HOME'"
    assert last(BARE.replace("script: c.py", "module: a.b")) == 'exec "${PYTHON:-python3}" -m a.b'


def test_time_is_limited_and_a_script_may_save_then() -> None:
    line = last(LEAST + "nodes: 2\ntimeouts: {job: 60, stop: 10}")
    assert line.startswith("exec timeout --kill-after=25 60 ")


def test_several_hosts_must_say_which_they_are_and_one_needs_not() -> None:
    assert '[ "$#" -ne 2 ]' in torchrun.render(task_of(text_of("ddp")))
    assert "$1" not in torchrun.render(task_of(text_of("one-node")))
    assert "export PET_MASTER_ADDR=127.0.0.1" in torchrun.render(task_of(text_of("one-node")))


@pytest.mark.parametrize(("case", "conf"), [("ddp", "timeout=900"), ("elastic", "join_timeout=900")])
def test_torchrun_waits_as_long_as_the_job_says(case: str, conf: str) -> None:
    task = task_of(text_of(case))
    assert {env["PET_RDZV_CONF"] for env in of_torchrun(torchrun.render(task), task)} == {conf}


def test_a_script_that_fails_is_not_started_again() -> None:
    task = task_of(text_of("ddp"))
    assert {env["PET_MAX_RESTARTS"] for env in of_torchrun(torchrun.render(task), task)} == {"0"}


def test_values_reach_the_script_as_they_are() -> None:
    task = hostile({})
    text = torchrun.render(task)
    assert f"export ODD={shlex.quote(HOSTILE)}\n" in text
    assert f"cd -- {shlex.quote(str(FOLDER))}\n" in text
    words = shlex.split(text.partition("\nexec ")[2])
    assert words[-len(task.job.args) - 1 :] == [task.job.script, *task.job.args]


def test_the_first_gpus_are_taken_unless_the_host_says_others() -> None:
    text = torchrun.render(task_of(text_of("gpus")))
    assert 'export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0,1,2,3}"' in text
    assert "CUDA_VISIBLE_DEVICES" not in torchrun.render(task_of(text_of("ddp")))


def test_what_a_bare_host_cannot_do_is_refused() -> None:
    assert not unsupported_keys(job_of(BARE + "nodes: 2\nfiles: {folder: .}\nresources: {gpu: 2}"), torchrun)
    auto = unsupported_keys(job_of(BARE + "processes: auto"), torchrun)
    assert [at for at, _ in auto] == [("processes",)]
    assert not unsupported_keys(job_of(BARE + "processes: auto\nresources: {gpu: 2}"), torchrun)
    git = unsupported_keys(job_of(BARE + "files: {git: {repository: a}}"), torchrun)
    assert [at for at, _ in git] == [("files", "git")]
