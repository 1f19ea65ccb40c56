"""The parts of `run` that need no process and no network: causes, commands, files, words between nodes."""

import ctypes
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.pytorch.launch import cpus, rank, space
from entrypoints.pytorch.launch.advice import advice_at_exit, advice_of, advice_on_driver, missing_driver_parts
from entrypoints.pytorch.launch.contract import Contract
from entrypoints.pytorch.launch.failure import Failures, JobFailure, describe
from entrypoints.pytorch.launch.health import states
from entrypoints.pytorch.launch.job import find_job
from entrypoints.pytorch.launch.launch_error import Code, LaunchError
from entrypoints.pytorch.launch.main import count_gpus, environment, main
from entrypoints.pytorch.launch.nodes import Alarm, NodeConnections
from entrypoints.pytorch.launch.ranks import RankProcesses, command_of, environments_of
from entrypoints.pytorch.launch.state import new_state
from entrypoints.pytorch.launch.wire import Wire
from torchbake.core.paths import TOOLKIT


def failure(rank: int, code: int = 1, *words: str, is_told: bool = False) -> JobFailure:
    return JobFailure(node=rank // 2, rank=rank, local_rank=rank % 2, code=code, words=words, told=is_told)


PEER_GONE = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [172.18.0.3]:1"
TIMED_OUT = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete"


def known_of(*failures: JobFailure) -> Failures:
    all_known = Failures()
    for each in failures:
        all_known.add(each)
    return all_known


def test_the_cause_is_not_the_peer_that_lost_its_connection() -> None:
    late = failure(3, 1, "ValueError: the loss is not a number")
    assert known_of(failure(0, 1, PEER_GONE), late, failure(1, 143, is_told=True)).cause == late


def test_a_common_missing_node_is_named_with_the_waiting_ones() -> None:
    failures = [failure(2, 1, TIMED_OUT), failure(0, 1, TIMED_OUT), failure(3, 143, is_told=True)]
    assert known_of(*failures).cause == failures[0]
    assert known_of(*failures).hung == [3]


def test_no_failure_has_no_cause() -> None:
    assert known_of().cause is None


def test_a_ranks_first_failure_counts_unless_a_cause_is_better() -> None:
    failures = Failures()
    assert failures.add(failure(0, 1, PEER_GONE))
    assert not failures.add(failure(1, 1, PEER_GONE))
    assert failures.add(failure(3, 7))
    assert not failures.add(failure(3, 143, is_told=True))
    assert not failures.add(failure(2, 9))
    assert failures.cause == failure(3, 7)


def test_the_failures_of_thousands_of_ranks_fit_into_memory() -> None:
    failures = known_of(*(failure(rank, 1, *["x" * 400] * 39, PEER_GONE) for rank in range(100)))
    assert sum(len(line) for each in failures for line in each.words) < 64 * 40 * 400 + 100 * 200
    assert all(each.waited for each in failures)


@given(st.lists(st.builds(failure, st.integers(0, 9), st.integers(1, 200), st.text(), is_told=st.booleans())))
def test_what_one_node_says_the_other_understands(failures: list[JobFailure]) -> None:
    answer = json.loads(json.dumps([each.as_message() for each in failures]))
    assert [JobFailure.from_message(values) for values in answer] == failures


@pytest.mark.parametrize(
    ("code", "says"), [(7, "exit code 7"), (137, "ended by SIGKILL (exit code 137)"), (255, "exit code 255")]
)
def test_an_exit_code_is_described_as_a_shell_means_it(code: int, says: str) -> None:
    assert describe(code) == says


# --- how ranks are started


def test_one_process_a_node_is_the_script_itself(tmp_path: Path) -> None:
    command = command_of(Contract(mode="standalone"), "socket", ("python", "train.py"))
    assert command[-2:] == ["python", "train.py"]
    assert "torch.distributed.run" not in command


def test_several_are_started_as_one_is_each_with_its_own_numbers() -> None:
    contract = Contract(mode="distributed", nnodes=3, node_rank=1, nproc_per_node=2, master_addr="node0")
    assert command_of(contract, "socket", ("train.py",)) == command_of(
        Contract(mode="standalone"), "socket", ("train.py",)
    )
    env = environment(contract, {"GLOO_SOCKET_IFNAME": "lo", "OWN": "1"})
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "OWN", "ROLE_RANK", "TORCHELASTIC_RUN_ID")
    matches = [tuple(own[name] for name in names) for own in environments_of(contract, env)]
    assert matches == [("2", "0", "6", "node0", "1", "2", "run"), ("3", "1", "6", "node0", "1", "3", "run")]


class Started:
    """A process that ends when the test says so."""

    pid = 2**22 + 1  # which no process has
    returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode


def test_a_rank_that_ends_before_it_reports_fails_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    started = [Started(), Started()]
    waiting = iter(started)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: next(waiting))
    monkeypatch.setattr(ctypes, "CDLL", MagicMock())  # of which this process would become the orphans' parent
    monkeypatch.setattr(RankProcesses, "_reap", lambda _: None)
    contract = Contract(mode="distributed", nnodes=2, node_rank=1, nproc_per_node=2, master_addr="node0")
    ranks = RankProcesses(contract, ("train.py",), {}, Path("/"))
    assert ranks.poll() == []
    started[1].returncode = -9
    assert ranks.poll() == [JobFailure(node=1, rank=3, local_rank=1, code=137)]
    assert ranks.poll() == []
    assert not ranks.all_over
    started[0].returncode = 0
    assert ranks.poll() == []
    assert ranks.all_over
    assert ranks.all_finished


def test_alone_there_is_one_process_without_numbers() -> None:
    assert environments_of(Contract(mode="standalone"), {"OWN": "1"}) == [{"OWN": "1"}]


def test_torchrun_gives_an_elastic_jobs_ranks_their_numbers() -> None:
    contract = Contract(mode="distributed", nnodes=2, nproc_per_node=4, elastic=(1, 2), master_addr="node0")
    assert len(environments_of(contract, {})) == 1
    assert "--nproc-per-node=4" in command_of(contract, "socket", ("train.py",))


def test_each_attempt_of_an_elastic_job_has_a_store_of_its_own() -> None:
    elastic = Contract(mode="distributed", nnodes=2, elastic=(1, 3), master_addr="127.0.0.1")
    name, arguments = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", {"GLOO_SOCKET_IFNAME": "lo"}
    assert environment(elastic, arguments)[name] == "1"
    assert environment(elastic, {**arguments, name: "0"})[name] == "0"
    assert name not in environment(Contract(mode="distributed", nnodes=2, master_addr="127.0.0.1"), arguments)


def test_an_elastic_job_meets_by_c10d(tmp_path: Path) -> None:
    contract = Contract(mode="distributed", nnodes=2, elastic=(1, 3), master_addr="node0")
    command = command_of(contract, "socket", ("train.py",))
    assert {"--nnodes=1:3", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:49875"} <= set(command)


def test_the_interface_that_the_user_names_is_for_both_libraries() -> None:
    values = environment(Contract(mode="distributed", nproc_per_node=2), {"GLOO_SOCKET_IFNAME": "eth7"})
    assert values["GLOO_SOCKET_IFNAME"] == values["NCCL_SOCKET_IFNAME"] == "eth7"


def test_torchruns_own_settings_do_not_reach_it_twice() -> None:
    contract = Contract(mode="distributed", nproc_per_node=2)
    values = environment(contract, {"GLOO_SOCKET_IFNAME": "lo", "PET_RDZV_BACKEND": "c10d", "PET_NNODES": "1"})
    assert not [name for name in values if name.startswith("PET_")]


@pytest.mark.parametrize(("choice", "count"), [(None, 2), ("0", 1), ("", 0), ("0,1,2,3", 2), ("-1", 0), ("1,-1,0", 1)])
def test_gpus_are_counted_by_their_devices(
    choice: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = [Path("/dev", name) for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")]
    monkeypatch.setattr(Path, "glob", lambda self, pattern: devices)
    assert count_gpus({} if choice is None else {"CUDA_VISIBLE_DEVICES": choice}) == count


# --- where the job's files come from


def test_a_script_is_looked_for_here_then_in_the_mounted_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, mounted = tmp_path / "here", tmp_path / "mounted"
    for folder in (here, mounted):
        folder.mkdir()
        (folder / "both.py").touch()
    (mounted / "one.py").touch()
    monkeypatch.chdir(here)
    env = {"JOB_DIR": str(mounted)}
    assert find_job(["both.py", "--lr", "1"], env, tmp_path).command == (
        sys.executable,
        str(here / "both.py"),
        "--lr",
        "1",
    )
    assert find_job(["one.py"], env, tmp_path).command == (sys.executable, str(mounted / "one.py"))
    with pytest.raises(LaunchError, match="GIT_REPOSITORY") as refused:
        find_job(["none.py"], env, tmp_path)
    assert refused.value.code == Code.NO_JOB


def test_each_searched_folder_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for same in (str(tmp_path), ".", str(tmp_path / "link"), f"{tmp_path}/"):
        with pytest.raises(LaunchError) as refused:
            find_job(["none.py"], {"JOB_DIR": same}, tmp_path)
        assert refused.value.sentence.count(str(tmp_path)) == 1, refused.value.sentence
        assert "neither" not in refused.value.sentence


def test_an_absolute_path_is_looked_for_in_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor in a repository, whose fetch would take minutes."""
    monkeypatch.chdir(tmp_path)
    cases = ((tmp_path / "job/none.py", "there is no file"), (tmp_path, "is a folder"))
    for script, reason in cases:
        for env in ({}, {"GIT_REPOSITORY": "/not/there"}):
            with pytest.raises(LaunchError, match=reason) as refused:
                find_job([str(script)], env, tmp_path)
            assert refused.value.code == Code.NO_JOB
            assert "GIT_REPOSITORY" not in refused.value.sentence


def test_a_program_runs_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "train"
    program.touch(mode=0o755)
    assert find_job(["train"], {}, tmp_path).command == (str(program),)


# --- words between nodes


def test_a_stranger_ends_its_connection_and_nothing_else() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    theirs.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert wire.receive() == []
    assert "does not speak" in wire.end_reason
    theirs.close()
    wire.close()


def test_half_a_message_waits_for_its_other_half() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    theirs.sendall(b'{"kind": "sta')
    assert wire.receive() == []
    theirs.sendall(b'rt"}\n{"kind": "beat"}\n')
    assert [message["kind"] for message in wire.receive()] == ["start"]
    theirs.close()
    assert wire.receive() == []
    assert "closed" in wire.end_reason
    wire.close()


# --- a script that was written for a group, alone


@pytest.mark.parametrize(
    "words",
    [
        "ValueError: Error initializing torch.distributed using env:// rendezvous: "
        "environment variable RANK expected, but not set",
        "KeyError: 'LOCAL_RANK'",
        "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
    ],
)
def test_a_script_that_wants_a_group_is_told_how_to_get_one(words: str) -> None:
    advice = advice_of(["Traceback (most recent call last):", words], mode="")
    assert "set NNODES=1" in advice
    assert "unset MODE" not in advice
    assert "unset MODE" in advice_of([words], mode="standalone")
    assert advice_of(["KeyError: 'RANKING'", "ValueError: no such column"], mode="") == ""


def test_a_rank_that_aborts_as_python_ends_is_told_the_way_out() -> None:
    words = ["a warning", "terminate called without an active exception"]
    assert "os._exit(0)" in advice_at_exit(134, words)
    assert advice_at_exit(139, words) == ""
    assert advice_at_exit(134, [*words, "Fatal Python error: Aborted"]) == ""
    assert advice_at_exit(134, []) == ""


def test_a_thread_that_cannot_be_started_is_a_limit() -> None:
    for words in ("RuntimeError: can't start new thread", "libgomp: Thread creation failed: Resource temporarily …"):
        assert "--pids-limit" in advice_at_exit(1, ["Traceback (most recent call last):", words])
    assert "--pids-limit" in advice_at_exit(Code.NO_PROCESS, ["python: Resource temporarily unavailable"])


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (
            "OSError: /tmp/home-1001/x.main.so: failed to map segment from shared object.  The most …",
            "TRITON_CACHE_DIR",
        ),
        (
            "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in …",
            "`compiler: false`",
        ),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable …", "`compiler: false`"),
        ("torch._inductor.exc.InductorError: ModuleNotFoundError: No module named 'setuptools'", "setuptools"),
    ],
)
def test_who_cannot_compile_or_load_is_told_the_way_out(words: str, advice: str) -> None:
    assert advice in advice_at_exit(1, ["Traceback (most recent call last):", words, "Set TORCHDYNAMO_VERBOSE=1 …"])
    assert advice_at_exit(1, ["OSError: x.so: cannot open shared object file", "g++: error"]) == ""


# --- what is said before the start, and to probes


def test_an_incomplete_driver_is_named_if_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrypoints.pytorch.launch.advice._loads", lambda library: library != "libcuda.so.1")
    cuda = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "PATH": "/nowhere"}
    assert missing_driver_parts(cuda) == ["libcuda.so.1", "nvidia-smi"]
    assert missing_driver_parts({"PATH": "/nowhere"}) == []
    advice = advice_on_driver(2, ["libcuda.so.1", "nvidia-smi"])
    assert "2 GPUs, but of the driver libcuda.so.1 and nvidia-smi are missing" in advice
    assert "1 GPU, but of the driver nvidia-smi is missing" in advice_on_driver(1, ["nvidia-smi"])
    assert (advice_on_driver(0, ["nvidia-smi"]), advice_on_driver(2, [])) == ("", "")


def test_a_small_shared_memory_is_named_with_its_cure() -> None:
    small = space.Space(shm=64 * 2**20, shm_free=0, temporary=Path("/tmp"), temporary_free=3 * 2**30)
    assert "/dev/shm 64 MB (small" in small.sentence
    assert "--shm-size" in small.sentence
    large = space.Space(shm=2**30, shm_free=0, temporary=Path("/tmp"), temporary_free=3 * 2**30)
    assert large.sentence == "/dev/shm 1 GB, /tmp 3 GB free"


def test_only_a_run_that_lives_answers_a_probe(tmp_path: Path) -> None:
    state = new_state(tmp_path)
    state.say("waiting", "waiting for node 1")
    assert [lines["detail"] for lines in states(str(tmp_path))] == ["waiting for node 1"]
    dead = tmp_path / "torchbake-run-1-x"
    dead.mkdir()
    (dead / "state.json").write_text(json.dumps({"pid": 2**22 + 1, "phase": "running", "detail": ""}))
    assert len(states(str(tmp_path))) == 1
    state.remove()
    assert states(str(tmp_path)) == []


def test_every_exit_code_is_in_the_documentation() -> None:
    text = (TOOLKIT / "docs/reference/env-contract.md").read_text()
    for code in Code:
        assert f"| {code.value} | {code.name} | {code.meaning} |" in text


def test_an_error_that_nobody_foresaw_is_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(cpus, "look", fail)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["train.py"]) == Code.INTERNAL
    assert (rank._INTERNAL, rank._NO_PROCESS) == (Code.INTERNAL, Code.NO_PROCESS)
    (line,) = capfd.readouterr().err.splitlines()
    assert all(word in line for word in ("ZeroDivisionError: two lines", "test_launch.py:", "/issues"))


# --- what is waited for


def test_the_end_of_a_process_is_seen_at_once_and_once() -> None:
    nodes, before = NodeConnections(), signal.getsignal(signal.SIGCHLD)
    with Alarm() as alarm:
        nodes.heed(alarm)
        signal.raise_signal(signal.SIGCHLD)
        assert waited(nodes, 60) < 30
        assert waited(nodes, 0.3) >= 0.3  # it has been seen
    assert signal.getsignal(signal.SIGCHLD) == before
    nodes.close()


def waited(nodes: NodeConnections, seconds: float) -> float:
    began = time.monotonic()
    assert nodes.poll(seconds) == []
    return time.monotonic() - began
