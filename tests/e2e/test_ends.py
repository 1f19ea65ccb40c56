"""A failure of one node or rank ends all nodes at once: `run` as processes on this host, as in test_run.py."""

# ruff: noqa: F811 - fixtures of another module are imported, and asked for by name

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from entrypoints.pytorch.launch.launch_error import Code
from tests.e2e.test_run import RUN, Start, address, job, script, start, wait_for  # noqa: F401 - fixtures

pytestmark = pytest.mark.entrypoints

Script = Callable[[str], str]
LATE = 300  # seconds; no node may wait that long


def _ends_soon(began: float) -> None:
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_a_script_that_one_node_lacks_ends_all(
    start: Start, script: Script, address: str, port: int, lacking: int
) -> None:
    began = time.monotonic()
    variables = job(address, port, 3, RENDEZVOUS_TIMEOUT=LATE)
    there = script("print('started')")
    nodes = [start("not-there.py" if rank == lacking else there, **each) for rank, each in enumerate(variables)]
    for code, out, err in [node.end(60) for node in nodes]:
        assert (code, out) == (Code.NO_JOB, "")
        assert "not-there.py is neither in" in err.splitlines()[-1]
    _ends_soon(began)


def test_a_node_without_a_temporary_folder_ends_all(start: Start, script: Script, address: str, port: int) -> None:
    one, other = job(address, port, 2, RENDEZVOUS_TIMEOUT=LATE)
    nodes = [start(script(""), **one), start(script(""), **{**other, "TMPDIR": "/proc"})]
    ends = [node.end(60) for node in nodes]
    assert [code for code, _, _ in ends] == [Code.NO_SPACE] * 2
    assert "node 1: nothing can be written to the temporary folder /proc" in ends[0][2]


def test_two_nodes_zero_are_told_of_each_other(start: Start, script: Script, address: str, port: int) -> None:
    """The second node 0 listens on another port, as if on another host; MASTER_ADDR leads both to the first."""
    began = time.monotonic()
    first = start(script("print('started')"), **job(address, port, 2)[0])
    inside = "import sys; sys.path.insert(0, sys.argv[1])\nfrom launch import gather, contract\n" + (
        "gather.listen = lambda _: __import__('socket').create_server(('', 0))\n"
        "from launch.main import main\nsys.exit(main(sys.argv[2:]))"
    )
    variables = {name: str(value) for name, value in job(address, port, 2)[0].items()}
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", inside, str(RUN.parent), script("print('started')")],
        env={"PATH": os.environ["PATH"], **variables}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    code, out, err = first.end(60)
    assert (code, process.returncode, out, process.stdout) == (Code.DISAGREE, Code.DISAGREE, "", "")
    for output in (err, process.stderr):
        assert "two nodes say that they are node 0" in output.splitlines()[-1]
    _ends_soon(began)


def test_a_node_that_comes_late_hears_why_the_job_cannot_start(
    start: Start, script: Script, address: str, port: int
) -> None:
    variables = job(address, port, 3, RENDEZVOUS_TIMEOUT=LATE)
    nodes = [start(script(""), **variables[0]), start(script(""), **{**variables[1], "NNODES": 4})]
    assert nodes[1].end(60)[0] == Code.DISAGREE
    nodes.append(start(script(""), **variables[2]))
    for node in (nodes[0], nodes[2]):
        code, _, err = node.end(60)
        assert code == Code.DISAGREE
        assert "NNODES is 4 on node 1" in err.splitlines()[-1]


def test_a_node_of_another_job_does_not_end_this_one(start: Start, script: Script, address: str, port: int) -> None:
    variables = job(address, port, 3, RENDEZVOUS_TIMEOUT=60)
    wait = script("time.sleep(1)")
    nodes = [start(wait, **each) for each in variables[:2]]
    wait_for(nodes[1].process.stderr, "node 0 waits for node 2")
    for odd in ({"NNODES": 5}, {"NPROC_PER_NODE": 2}, {"NNODES": 9, "NODE_RANK": 8}):
        code, _, err = start(wait, **{**variables[1], **odd}).end()
        assert (code, "nodes disagree" in err) == (Code.DISAGREE, True)
    nodes.append(start(wait, **variables[2]))
    assert [node.end()[0] for node in nodes] == [0, 0, 0]


def test_a_port_that_another_program_holds_is_told_soon(start: Start, script: Script, address: str, port: int) -> None:
    began = time.monotonic()
    with socket.create_server(("", port)) as listener:

        def serve() -> None:
            try:
                while connection := listener.accept()[0]:
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        code, _, err = start(script(""), **job(address, port, 2, RENDEZVOUS_TIMEOUT=LATE)[1]).end(60)
    assert code == Code.NO_PORT
    assert "Perhaps another program holds its port" in err.splitlines()[-1]
    _ends_soon(began)


# --- ranks


def test_a_stopped_rank_ends_the_job_after_its_time(start: Start, script: Script, address: str, port: int) -> None:
    text = "if os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(100)"
    nodes = [start(script(text), **each) for each in job(address, port, 2, STOPPED_TIMEOUT=2)]
    for code, _, err in [node.end(60) for node in nodes]:
        assert code == 128 + signal.SIGSTOP
        assert re.search(r"rank 1 \(node 1, local rank 0\): its process \d+ has been stopped", err)


def test_a_rank_that_is_continued_in_time_goes_on(start: Start, script: Script) -> None:
    text = (
        "if os.fork() == 0:\n    time.sleep(2); os.kill(os.getppid(), signal.SIGCONT); os._exit(0)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\nos.wait()\nprint('went on')"
    )
    code, out, err = start(script(text), STOPPED_TIMEOUT=30).end(60)
    assert (code, out) == (0, "went on\n"), err


def test_a_stopped_rank_may_be_left_alone(start: Start, script: Script) -> None:
    text = (
        "if os.fork() == 0:\n    time.sleep(3); os.kill(os.getppid(), signal.SIGCONT); os._exit(0)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\nos.wait()\nprint('went on')"
    )
    assert start(script(text), STOPPED_TIMEOUT=0).end(60)[:2] == (0, "went on\n")


def test_a_rank_that_ended_early_is_named_when_others_wait(
    start: Start, script: Script, address: str, port: int
) -> None:
    text = (
        "if os.environ['RANK'] == '2':\n    sys.exit(0)\n"
        "time.sleep(2)\nraise RuntimeError('Connection closed by peer [192.0.2.1]:1')"
    )
    nodes = [start(script(text), **each) for each in job(address, port, 3)]
    for code, _, err in [node.end(60) for node in nodes]:
        assert code == 1
        assert "it waited for another; rank 2 has ended with 0 before" in err


# --- what `run` itself needs


def test_a_log_that_takes_nothing_ends_no_job(script: Script, address: str, port: int) -> None:
    command = [sys.executable, "-I", "-S", str(RUN), script("time.sleep(0.5); sys.exit(int(os.environ['RANK']) * 7)")]
    environments = [{name: str(value) for name, value in each.items()} for each in job(address, port, 2)]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        nodes = [subprocess.Popen(command, env={**os.environ, **each}, stderr=full) for each in environments]
        assert [node.wait(60) for node in nodes] == [7, 7]


def test_a_state_that_cannot_be_written_ends_no_job(start: Start, script: Script, address: str, port: int) -> None:
    """Delete the folder of the state: writes fail as on a full disk, without an extra file system."""
    text = (
        "import glob, shutil\nfor folder in glob.glob(os.environ['TMPDIR'] + '/torchbake-run-*'):\n"
        "    shutil.rmtree(folder, ignore_errors=True)  # the other rank does so too\n"
        "time.sleep(1)\nsys.exit(7 if os.environ['RANK'] == '1' else 0)"
    )
    nodes = [start(script(text), **each) for each in job(address, port, 2)]
    for code, _, err in [node.end(60) for node in nodes]:
        assert code == 7
        assert "rank 1 (node 1, local rank 0): exit code 7" in err
        assert "Traceback" not in err


def test_a_dry_run_tells_the_settings_of_an_elastic_job(start: Start, script: Script) -> None:
    pet = {"PET_MAX_RESTARTS": 7, "PET_RDZV_ID": "job-1", "PET_RDZV_CONF": "last_call_timeout=2,join_timeout=9"}
    code, out, _ = start("--dry-run", script(""), ELASTIC="1:2", MASTER_ADDR="node0", **pet).end()
    launcher = json.loads(out)["launcher"]
    assert code == 0
    assert {"--max-restarts=7", "--rdzv-id=job-1", "--rdzv-conf=join_timeout=9,last_call_timeout=2"} <= set(launcher)
