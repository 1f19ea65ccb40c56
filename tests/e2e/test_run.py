"""`run` and `health` as processes on this host: no engine, no torch, real sockets and signals.

Each test starts one `run` for each node; they find each other by this host's own address.
"""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from entrypoints.pytorch.launch.health import start_time
from entrypoints.pytorch.launch.launch_error import Code
from tests.e2e.waiting import until

pytestmark = pytest.mark.entrypoints

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "entrypoints/pytorch/run"
HEALTH = ROOT / "entrypoints/pytorch/health"

Start = Callable[..., "Node"]


@dataclass
class Node:
    """One `run`; its words are read when it has ended."""

    process: subprocess.Popen[str]

    def end(self, seconds: float = 60) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


@pytest.fixture(scope="module")
def address() -> str:
    """This host's own address that is not loopback: a worker refuses a master on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a `run` of words with variables; what still runs at the end of the test is killed."""
    nodes: list[Node] = []

    def start_one(*words: str, cwd: Path = tmp_path, by: tuple[str, ...] = (), **variables: object) -> Node:
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "JOB_DIR": str(tmp_path / "job")}
        env |= {name: str(value) for name, value in variables.items()}
        command = [*by, sys.executable, "-I", "-S", str(RUN), *words]
        process = subprocess.Popen(
            command, env=env, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        nodes.append(Node(process))
        return nodes[-1]

    yield start_one
    for node in nodes:
        node.process.terminate()  # it ends its ranks, which a kill would leave behind
    for node in nodes:
        try:
            node.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.communicate()


def wait_for(stream: IO[str] | None, words: str) -> None:
    """Read lines until one has the words; where they never come, the end of the stream fails the test."""
    assert stream is not None
    read: list[str] = []
    while words not in (line := stream.readline()):
        assert line, f"{words!r} is not in {read}"
        read.append(line)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(f"import os, sys, time, signal\n{text}\n")
        return str(path)

    return write


def job(address: str, port: int, nodes: int, **more: object) -> list[dict[str, object]]:
    """The variables of each node of a job."""
    common = {"NNODES": nodes, "MASTER_ADDR": address, "MASTER_PORT": port, "RENDEZVOUS_TIMEOUT": 10, **more}
    return [{**common, "NODE_RANK": rank} for rank in range(nodes)]


@pytest.mark.parametrize("code", [0, 42, *(pytest.param(code, marks=pytest.mark.long) for code in (1, 126, 143))])
def test_the_scripts_exit_code_is_the_exit_code(start: Start, script: Callable[[str], str], code: int) -> None:
    assert start(script(f"sys.exit({code})")).end()[0] == code


def test_a_script_that_a_signal_ends_is_told_as_a_shell_tells_it(start: Start, script: Callable[[str], str]) -> None:
    code, _, err = start(script("os.kill(os.getpid(), signal.SIGSEGV)")).end()
    assert code == 128 + signal.SIGSEGV
    assert "SIGSEGV" in err.splitlines()[-1]


def test_a_crash_beside_the_script_is_not_called_a_kill(start: Start, script: Callable[[str], str]) -> None:
    """A kill reads as a lack of memory."""
    code, _, err = start(script("os.kill(os.getppid(), signal.SIGSEGV); time.sleep(60)")).end()
    assert code == 128 + signal.SIGSEGV
    assert "SIGSEGV" in err.splitlines()[-1]


def test_a_name_that_no_node_can_resolve_is_refused_everywhere(
    start: Start, script: Callable[[str], str], address: str, port: int
) -> None:
    one, other = job(address, port, 2, RENDEZVOUS_TIMEOUT=60)
    nodes = [start(script(""), **one), start("x" * 300 + ".py", **other)]
    for code, _, err in [node.end(60) for node in nodes]:
        assert code == Code.NO_JOB
        assert "cannot be searched for (File name too long)" in err
        assert "Traceback" not in err


def test_all_that_a_script_says_comes_through_a_slow_log(
    start: Start, script: Callable[[str], str], tmp_path: Path
) -> None:
    """The log is a pipe that nobody reads for a while, and that holds less than the script has to say."""
    reply = tmp_path / "said"
    path = script(f"sys.stderr.write('x' * 110_000 + '\\nthe cause\\n'); open({str(reply)!r}, 'w'); sys.exit(3)")
    node = start(path)
    until(reply.exists)
    time.sleep(2)
    code, _, err = node.end(60)
    assert code == 3
    assert err.count("x" * 110_000) == 1
    assert err.splitlines()[-1].strip() == "the cause"


def test_no_script_outlives_a_run_that_is_killed(start: Start, script: Callable[[str], str], tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    node = start(script(f"open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"))
    until(lambda: pid.exists() and pid.read_text())
    node.process.kill()
    until(lambda: not start_time(int(pid.read_text())), 20)


def test_standalone_has_no_distributed_variable(start: Start, script: Callable[[str], str]) -> None:
    text = "import json; print(json.dumps(dict(os.environ)))"
    _, out, _ = start(script(text), MODE="standalone", MASTER_ADDR="somewhere", MASTER_PORT=1, LOCAL_RANK=3).end()
    assert not {"MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE"} & set(json.loads(out))


def test_one_node_is_a_group_of_one_with_a_port_of_its_own(start: Start, script: Callable[[str], str]) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    path = script(f"print(*(os.environ[name] for name in {names}), flush=True); time.sleep(1)")
    both = [start(path, NNODES=1), start(path, NNODES=1)]
    ends = [node.end() for node in both]
    assert [code for code, _, _ in ends] == [0, 0], ends
    words = [out.split() for _, out, _ in ends]
    assert [line[:4] for line in words] == [["0", "1", "0", "127.0.0.1"]] * 2
    assert words[0][4] != words[1][4]


def test_a_distributed_script_alone_ends_with_the_next_step(start: Start, script: Callable[[str], str]) -> None:
    code, _, err = start(script("print(os.environ['RANK'])")).end()
    assert code == 1
    assert "KeyError: 'RANK'" in err
    assert "set NNODES=1" in err.splitlines()[-1]


def test_an_interrupt_while_it_waits_is_no_traceback(
    start: Start, script: Callable[[str], str], address: str, port: int
) -> None:
    node = start(script(""), **{**job(address, port, 2)[0], "RENDEZVOUS_TIMEOUT": 60})
    wait_for(node.process.stderr, "waiting for node 1")
    node.process.send_signal(signal.SIGINT)
    code, _, err = node.end()
    assert (code, "Traceback" in err) == (130, False)


def test_the_first_error_is_the_last_thing_printed(start: Start, script: Callable[[str], str]) -> None:
    code, _, err = start(script("print('a warning', file=sys.stderr); raise ValueError('no such column')")).end()
    assert code == 1
    assert err.splitlines()[-1].strip() == "ValueError: no such column"


def test_nodes_start_together_each_with_its_numbers(
    start: Start, script: Callable[[str], str], address: str, port: int
) -> None:
    text = "print(*(os.environ[n] for n in ('RANK','WORLD_SIZE','LOCAL_RANK','NODE_RANK','MASTER_PORT')), time.time())"
    nodes, late = [], 0.0
    for variables in reversed(job(address, port, 3)):  # the workers first, the master late
        late = time.time()
        nodes.append(start(script(text), **variables))
        time.sleep(0.4)
    ends = [node.end() for node in nodes]
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    words = sorted(out.split() for _, out, _ in ends)
    assert [line[:5] for line in words] == [[str(rank), "3", "0", str(rank), str(port)] for rank in range(3)]
    assert min(float(line[5]) for line in words) > late  # nobody before the last has come


def test_the_masters_port_is_free_for_the_script(
    start: Start, script: Callable[[str], str], address: str, port: int
) -> None:
    text = (
        "import socket\n"
        "if os.environ['RANK'] == '0':\n"
        "    print(socket.create_server(('', int(os.environ['MASTER_PORT']))).accept()[0].recv(9))\n"
        "for _ in range(100):\n"
        "    if os.environ['RANK'] == '0': break\n"
        "    address = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
        "    try: socket.create_connection(address).send(b'hello')\n"
        "    except OSError: time.sleep(0.1)\n"
        "    else: break\n"
    )
    ends = [start(script(text), **variables).process for variables in job(address, port, 2)]
    outs = [process.communicate(timeout=60) for process in ends]
    assert [process.returncode for process in ends] == [0, 0], outs
    assert "hello" in outs[0][0]


def test_one_ranks_failure_ends_all_with_its_code_and_words(
    start: Start, script: Callable[[str], str], address: str, port: int
) -> None:
    text = (
        "if os.environ['RANK'] == '1':\n    time.sleep(1); print('boom', file=sys.stderr); sys.exit(7)\ntime.sleep(60)"
    )
    began = time.monotonic()
    nodes = [start(script(text), **variables) for variables in job(address, port, 3)]
    for code, _, err in [node.end() for node in nodes]:
        assert code == 7
        assert "rank 1 (node 1, local rank 0): exit code 7" in err
        assert err.splitlines()[-1].strip() == "boom"
    assert time.monotonic() - began < 30  # 3 s on a quiet machine


def test_a_script_that_ignores_sigterm_is_ended_too(
    start: Start, script: Callable[[str], str], address: str, port: int
) -> None:
    text = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.environ['RANK'] == '0':\n    time.sleep(1); sys.exit(3)\ntime.sleep(60)"
    )
    began = time.monotonic()
    nodes = [start(script(text), **variables) for variables in job(address, port, 2)]
    assert [node.end()[0] for node in nodes] == [3, 3]
    assert time.monotonic() - began < 30  # 6 s on a quiet machine, of which its grace is most


@pytest.mark.parametrize("victim", [0, 1])
def test_sigterm_on_one_node_reaches_every_rank(
    start: Start, script: Callable[[str], str], address: str, port: int, victim: int
) -> None:
    text = "print('up', flush=True)\ntime.sleep(60)"
    nodes = [start(script(text), **variables) for variables in job(address, port, 3)]
    for node in nodes:
        assert node.process.stdout is not None
        node.process.stdout.readline()
    began = time.monotonic()
    nodes[victim].process.send_signal(signal.SIGTERM)
    assert [node.end()[0] for node in nodes] == [143, 143, 143]
    assert time.monotonic() - began < 30  # 1 s on a quiet machine


def test_a_checkpoint_on_sigterm_may_end_well(start: Start, script: Callable[[str], str]) -> None:
    text = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nprint('up', flush=True)\ntime.sleep(60)"
    node = start(script(text))
    assert node.process.stdout is not None
    node.process.stdout.readline()
    node.process.send_signal(signal.SIGTERM)
    assert node.end()[0] == 0


def test_no_process_of_a_job_outlives_it(start: Start, script: Callable[[str], str], tmp_path: Path) -> None:
    mark = f"99.{time.time_ns()}"
    text = f"import subprocess\nsubprocess.Popen(['setsid', 'sleep', '{mark}'])\ntime.sleep(0.5)\nsys.exit(4)"
    assert start(script(text)).end()[0] == 4
    assert subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False).stdout == ""


def test_a_node_that_is_killed_ends_the_others(
    start: Start, script: Callable[[str], str], address: str, port: int
) -> None:
    nodes = [start(script("print('up', flush=True)\ntime.sleep(60)"), **each) for each in job(address, port, 3)]
    for node in nodes:
        assert node.process.stdout is not None
        node.process.stdout.readline()
    os.killpg(nodes[2].process.pid, signal.SIGKILL)
    for node in nodes[:2]:
        code, _, err = node.end()
        assert code == Code.NODE_LOST
        assert "node 2 is gone" in err


# --- refusals: one sentence, and an exit code of their own


@pytest.mark.parametrize(
    ("variables", "code", "words"),
    [
        ({"MODE": "cluster"}, Code.BAD_VALUE, ["MODE", "cluster"]),
        ({"NNODES": "two"}, Code.BAD_VALUE, ["NNODES", "two"]),
        ({"NNODES": 2, "NODE_RANK": 2, "MASTER_ADDR": "m"}, Code.BAD_VALUE, ["NODE_RANK", "2"]),
        ({"NNODES": 2, "PET_NNODES": 3, "MASTER_ADDR": "m"}, Code.CONFLICT, ["NNODES", "PET_NNODES"]),
        ({"NNODES": 2, "NODE_RANK": 1, "MASTER_ADDR": "localhost"}, Code.LOOPBACK_MASTER, ["MASTER_ADDR"]),
        ({"NNODES": 2, "NODE_RANK": 1, "MASTER_ADDR": "no-such.invalid", "RENDEZVOUS_TIMEOUT": 1},
         Code.NO_NAME, ["no-such.invalid", "RENDEZVOUS_TIMEOUT"]),
        ({"TMPDIR": "/proc"}, Code.NO_SPACE, ["/proc", "TMPDIR"]),
    ],
    ids=lambda value: value.name if isinstance(value, Code) else None,
)  # fmt: skip
def test_refusals(
    start: Start, script: Callable[[str], str], variables: dict[str, Any], code: Code, words: list[str]
) -> None:
    count, out, err = start(script("print('started')"), **variables).end()
    assert (count, out) == (code, "")
    last = err.splitlines()[-1]
    assert last.startswith("run: ")
    assert all(word in last for word in words), last


def test_a_closed_port_is_the_second_phase(start: Start, script: Callable[[str], str], address: str, port: int) -> None:
    began = time.monotonic()
    code, _, err = start(script(""), **{**job(address, port, 2)[1], "RENDEZVOUS_TIMEOUT": 2}).end()
    assert code == Code.NO_PORT
    assert f"port {port}" in err.splitlines()[-1]
    assert 1.9 < time.monotonic() - began < 20


def test_a_stranger_on_the_port_is_named(start: Start, script: Callable[[str], str], address: str, port: int) -> None:
    with socket.create_server(("", port)):
        code, _, err = start(script(""), **{**job(address, port, 2)[1], "RENDEZVOUS_TIMEOUT": 2}).end()
    assert code == Code.NO_PORT
    assert "does node 0 start it by `run` too?" in err


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_port_in_use_on_the_master(
    start: Start, script: Callable[[str], str], address: str, port: int, nodes: int
) -> None:
    with socket.create_server(("", port)):
        code, _, err = start(script(""), MODE="distributed", **job(address, port, nodes)[0]).end()
    assert code == Code.PORT_IN_USE
    assert str(port) in err


def test_nodes_that_disagree(start: Start, script: Callable[[str], str], address: str, port: int) -> None:
    one, other = job(address, port, 2)[0], job(address, port, 3)[1]
    nodes = [start(script(""), **one), start(script(""), **other)]
    for code, _, err in [node.end() for node in nodes]:
        assert code == Code.DISAGREE
        assert "NNODES is 3 on node 1 and 2 on node 0" in err


def test_two_nodes_of_one_number(start: Start, script: Callable[[str], str], address: str, port: int) -> None:
    variables = job(address, port, 3)
    nodes = [start(script(""), **variables[rank]) for rank in (0, 1, 1)]
    for code, _, err in [node.end() for node in nodes]:
        assert code == Code.DISAGREE
        assert "two nodes say that they are node 1" in err


def test_a_node_that_never_comes_is_named_everywhere(
    start: Start, script: Callable[[str], str], address: str, port: int
) -> None:
    nodes = [start(script(""), **{**each, "RENDEZVOUS_TIMEOUT": 2}) for each in job(address, port, 3)[:2]]
    for code, _, err in [node.end() for node in nodes]:
        assert code == Code.NODES_MISSING
        assert "node 2 of 3 did not come" in err


def test_a_script_that_is_not_there(start: Start) -> None:
    code, _, err = start("train.py").end()
    assert code == Code.NO_JOB
    assert "GIT_REPOSITORY" in err


def test_a_wrong_command_line(start: Start) -> None:
    assert start("--fast").end()[0] == Code.USAGE
    assert start().end()[0] == Code.USAGE
    assert start("--help").end()[0] == 0


# --- where files come from


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def git(*words: str) -> None:
        settings = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *settings, *words], cwd=folder, env=env, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    for version in ("one", "two", "three"):
        (folder / "train.py").write_text(f"import os, helper\nprint('{version}', helper.NAME)\n")
        (folder / "helper.py").write_text("NAME = 'helper'\n")
        git("add", ".")
        git("commit", "-m", version)
        git("tag", f"v-{version}")
    git("branch", "old", "v-one")
    return folder


def _sha(repository: Path, name: str) -> str:
    process = subprocess.run(["git", "rev-parse", name], cwd=repository, capture_output=True, text=True, check=True)
    return process.stdout.strip()


@pytest.mark.parametrize(
    ("revision", "says"), [("", "three"), ("main", "three"), ("old", "one"), ("v-two", "two"), ("sha", "two")]
)
def test_a_job_from_a_repository(start: Start, repository: Path, revision: str, says: str) -> None:
    revision = _sha(repository, "v-two") if revision == "sha" else revision
    code, out, err = start("train.py", GIT_REPOSITORY=f"file://{repository}", GIT_REVISION=revision).end()
    assert (code, out.split()) == (0, [says, "helper"]), err


def test_a_mounted_folder_comes_before_a_repository(start: Start, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/train.py").write_text("print('mounted')")
    _, out, _ = start("train.py", GIT_REPOSITORY=f"file://{repository}").end()
    assert out == "mounted\n"


def test_a_missing_revision_is_an_error_without_the_password(start: Start, repository: Path) -> None:
    code, _, err = start("train.py", GIT_REPOSITORY=f"file://{repository}", GIT_REVISION="v-nine").end()
    assert code == Code.NO_JOB
    assert "v-nine" in err
    code, _, err = start("train.py", GIT_REPOSITORY="http://me:secret@127.0.0.1:1/x.git").end()
    assert code == Code.NO_JOB
    assert "127.0.0.1:1" in err
    assert "secret" not in err
    for url in ("http://me:sec@ret@127.0.0.1:1/x", "http://me:ret/sec@127.0.0.1:1/x", "http://127.0.0.1:1/x?token=ret"):
        code, _, err = start("train.py", GIT_REPOSITORY=url).end()
        assert code in (Code.NO_JOB, Code.BAD_VALUE)
        assert "ret" not in err.replace("secret", "")


@pytest.mark.parametrize("variable", ["GIT_REVISION", "GIT_REPOSITORY"])
def test_no_variable_of_git_runs_a_command(start: Start, repository: Path, tmp_path: Path, variable: str) -> None:
    planted = tmp_path / "planted"
    values = {"GIT_REPOSITORY": f"file://{repository}", "GIT_REVISION": "main"}
    for value in (f"--upload-pack=touch {planted};", f"ext::sh -c touch% {planted}", f"-cx=!touch {planted}"):
        code, _, err = start("train.py", **{**values, variable: value}).end()
        assert code == Code.BAD_VALUE, err
        assert variable in err
    assert not planted.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="not-run: giving a folder to another user needs root")
def test_a_repository_of_another_user_is_called_that(start: Start, repository: Path) -> None:
    for path in (repository, *repository.rglob("*")):
        os.chown(path, 12345, 12345)
    code, _, err = start("train.py", GIT_REPOSITORY=f"file://{repository}").end()
    assert code == Code.NO_JOB
    assert "dubious ownership" in err.splitlines()[-1]
    assert "--user" in err.splitlines()[-1]


def test_an_image_without_ssh_is_told_so(start: Start, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    git = shutil.which("git")
    assert git
    (tmp_path / "bin/git").symlink_to(git)
    code, _, err = start("train.py", GIT_REPOSITORY="ssh://git@127.0.0.1:1/a", PATH=tmp_path / "bin").end()
    assert code == Code.NO_JOB
    assert "cannot run ssh" in err
    assert "openssh-client" in err


def test_a_fetch_ends_at_its_timeout_with_all_its_processes(
    start: Start, tmp_path: Path, address: str, port: int
) -> None:
    with socket.create_server((address, port)):  # it takes connections, and says nothing
        began = time.monotonic()
        url = f"http://{address}:{port}/{tmp_path.name}.git"
        code, _, err = start("train.py", GIT_REPOSITORY=url, GIT_TIMEOUT=1).end()
        assert code == Code.NO_JOB
        assert "within 1 seconds" in err
        assert "GIT_TIMEOUT" in err
        assert time.monotonic() - began < 20
    until(lambda: not subprocess.run(["pgrep", "-f", url], capture_output=True, check=False).stdout, 10)


def test_a_commit_that_the_server_does_not_hand_out_alone(start: Start, repository: Path) -> None:
    """Only its branches and tags are offered; the commit is found in all of them."""
    sha = _sha(repository, "v-two")
    for name in (sha, sha[:9]):
        code, out, err = start("train.py", GIT_REPOSITORY=f"file://{repository}", GIT_REVISION=name).end()
        assert (code, out.split()) == (0, ["two", "helper"]), err


def test_the_fetch_is_not_led_elsewhere(start: Start, repository: Path, tmp_path: Path) -> None:
    """GIT_DIR of a shell in which `docker run` passes all variables on, for one."""
    other = tmp_path / "other.git"
    code, out, err = start("train.py", GIT_REPOSITORY=f"file://{repository}", GIT_DIR=other).end()
    assert (code, out.split(), other.exists()) == (0, ["three", "helper"], False), err


def test_a_module_of_the_folder(start: Start, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__main__.py").write_text("import sys; print(sys.argv[1:])")
    assert start("-m", "package", "--lr", "0.1").end()[1] == "['--lr', '0.1']\n"


def test_a_dry_run_shows_each_ranks_variables(start: Start, script: Callable[[str], str]) -> None:
    node = start("--dry-run", script("print('started')"), NNODES=2, NODE_RANK=1, NPROC_PER_NODE=2, MASTER_ADDR="node0")
    code, out, _ = node.end()
    plan = json.loads(out)
    assert code == 0
    assert [rank["RANK"] for rank in plan["ranks"]] == ["2", "3"]


# --- health


def _health(tmp_path: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-I", "-S", str(HEALTH), *words]
    process = subprocess.run(command, env={"TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False)
    return process.returncode, process.stdout


def test_health_is_ready_when_all_nodes_have_come(
    start: Start, script: Callable[[str], str], address: str, port: int, tmp_path: Path
) -> None:
    assert _health(tmp_path)[0] == 0  # no `run`: another command runs in the container
    master, worker = job(address, port, 2)
    wait = script("print('up', flush=True)\ntime.sleep(30)")
    first = start(wait, **master)
    wait_for(first.process.stderr, "waiting for node 1")
    code, output = _health(tmp_path)
    assert (code, output) == (1, "not ready: waiting: waiting for node 1\n")
    assert _health(tmp_path, "--live")[0] == 0
    start(wait, **worker)
    assert first.process.stdout is not None
    first.process.stdout.readline()
    assert _health(tmp_path) == (0, "healthy: running\n")


def test_health_trusts_no_file_that_run_has_not_written(
    start: Start, script: Callable[[str], str], tmp_path: Path
) -> None:
    def planted(name: str) -> Path:
        folder = tmp_path / f"torchbake-run-1-{name}"
        folder.mkdir()
        return folder / "state.json"

    mine = {"pid": os.getpid(), "started": start_time(os.getpid()), "phase": "waiting", "detail": ""}
    odd: list[Any] = [[], None, 7, {}, {**mine, "pid": "1"}, {**mine, "pid": True}, {**mine, "phase": ["x"]}]
    odd += [{**mine, "phase": "x"}, {**mine, "detail": {}}, {**mine, "pid": 10**30}, {**mine, "pid": -1}]
    odd += [{**mine, "started": 1}, {**mine, "started": None}]  # of a process that had this id before
    for number, values in enumerate(odd):
        planted(f"odd{number}").write_text(json.dumps(values))
    planted("nested").write_text("[" * 60000)
    planted("bytes").write_bytes(b"\xff\xfe")
    planted("large").write_text(json.dumps({**mine, "detail": "x" * 10**6}))
    os.mkfifo(planted("fifo"))
    (tmp_path / "elsewhere").write_text(json.dumps(mine))
    planted("link").symlink_to(tmp_path / "elsewhere")
    planted("folder").mkdir()
    assert _health(tmp_path) == (0, "healthy: the container runs\n")
    node = start(script("print('up', flush=True); time.sleep(30)"))
    assert node.process.stdout is not None
    node.process.stdout.readline()
    assert _health(tmp_path) == (0, "healthy: running\n")


def test_health_prints_what_a_terminal_would_obey_as_text(tmp_path: Path) -> None:
    folder = tmp_path / "torchbake-run-1-x"
    folder.mkdir()
    mine = {"pid": os.getpid(), "started": start_time(os.getpid()), "phase": "waiting"}
    state = {**mine, "detail": "\x1b[2J\ud800 node 1"}
    (folder / "state.json").write_text(json.dumps(state))
    assert _health(tmp_path) == (1, "not ready: waiting: ?[2J? node 1\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="not-run: being another user needs root")
def test_health_trusts_no_other_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "torchbake-run-1-x"
    folder.mkdir(mode=0o755)
    mine = {"pid": os.getpid(), "started": start_time(os.getpid()), "phase": "waiting", "detail": ""}
    (folder / "state.json").write_text(json.dumps(mine))
    assert _health(tmp_path)[0] == 1
    look = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); from entrypoints.pytorch.launch.health import states\n"
        # From inside, as the folders above let nobody else in; the file can be read, so that only its owner counts.
        "print(len(states('.'))); os.setuid(65534); open('torchbake-run-1-x/state.json').close(); print(states('.'))"
    )
    command = [sys.executable, "-B", "-c", look]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.stdout == "1\n[]\n", process.stderr


def test_health_costs_little(tmp_path: Path) -> None:
    """CPU seconds, against those of a Python that does nothing: a slow machine makes both dearer."""

    def cost(work: Callable[[], object]) -> float:
        costs = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            work()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return sorted(costs)[2]

    bare = cost(lambda: subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True))
    assert cost(lambda: _health(tmp_path)) < 10 * bare + 0.02


def test_nothing_is_left_in_the_temporary_folder(start: Start, script: Callable[[str], str], tmp_path: Path) -> None:
    start(script("")).end()
    assert not list(tmp_path.glob("torchbake-run-*"))


# --- the entrypoint's home


def _home(temporary: Path, *, home: str | None = "/nonexistent") -> Path:
    """HOME of a command that the entrypoint starts; None: it is not set."""
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(temporary), "TORCHBAKE_BANNER": "0"}
    env |= {} if home is None else {"HOME": home}
    words = [str(ROOT / "entrypoints/pytorch/entrypoint"), "sh", "-c", 'echo "$HOME"']
    process = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert process.stderr == ""
    return Path(process.stdout.strip())


def test_without_a_writable_home_there_is_one_of_this_user_alone(tmp_path: Path) -> None:
    usual = tmp_path / f"home-{os.geteuid()}"
    assert _home(tmp_path) == usual
    assert usual.stat().st_mode & 0o7777 == 0o700
    assert _home(tmp_path) == usual  # the next command of this user finds its caches
    assert _home(tmp_path, home=str(tmp_path)) == tmp_path
    assert _home(tmp_path, home="") == usual
    assert _home(tmp_path, home=None) == usual


@pytest.mark.parametrize("kind", ["link", "open", "file", "foreign"])
def test_what_others_may_have_put_there_is_no_home(tmp_path: Path, kind: str) -> None:
    usual = tmp_path / f"home-{os.geteuid()}"
    if kind == "link":
        (tmp_path / "trap").mkdir(mode=0o700)
        usual.symlink_to(tmp_path / "trap")
    elif kind == "file":
        usual.touch(mode=0o700)
    else:
        usual.mkdir()
        usual.chmod(0o777 if kind == "open" else 0o700)
    if kind == "foreign":
        if os.geteuid() != 0:
            pytest.skip("not-run: giving a folder to another user needs root")
        os.chown(usual, 12345, 12345)
    path = _home(tmp_path)
    assert path != usual
    assert path.parent == tmp_path
    assert (path.stat().st_uid, path.stat().st_mode & 0o7777) == (os.geteuid(), 0o700)


def test_what_no_entrypoint_started_finds_the_same_home(tmp_path: Path) -> None:
    """Also a shell that ends at the first failure or unset variable; and no variable is left behind."""
    inside = ROOT / "entrypoints/pytorch"
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "HOME": "/nonexistent", "TORCHBAKE_BANNER": "0"}
    env["LANG"] = "C.UTF-8"  # with C, Python adds a variable

    def actual(*words: str) -> dict[str, str]:
        process = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
        return dict(sorted(json.loads(process.stdout).items()))

    show = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k not in {'_', 'PWD', 'SHLVL'}}))"
    plain = (sys.executable, "-I", "-S", "-c", show)
    arguments = actual(str(inside / "entrypoint"), *plain)
    assert arguments["HOME"] == str(tmp_path / f"home-{os.geteuid()}")
    assert arguments.keys() - env.keys() == {
        *("USER", "LOGNAME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    }
    assert actual("bash", "-euc", '. "$0"; set -a; . "$0"; exec "$@"', str(inside / "profile"), *plain) == arguments
    assert (
        actual(sys.executable, "-c", f"import runpy; runpy.run_path({str(inside / 'python_profile.py')!r})\n{show}")
        == arguments
    )


# --- how soon


def test_a_job_of_one_process_loads_no_distributed_modules(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "nothing.py"
    script.write_text("")
    as_before = "import runpy, sys; sys.argv = sys.argv[4:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    node = start(str(script), by=(sys.executable, "-X", "importtime", "-c", as_before))
    code, _, words = node.end()
    loaded = {line.rpartition("|")[2].strip() for line in words.splitlines() if line.startswith("import time:")}
    assert code == 0
    assert "launch.main" in loaded
    assert not loaded & {"hmac", "launch.checkin", "launch.gather", "launch.repository"}
