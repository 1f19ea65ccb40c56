"""Node 0's port in the open: hostile peers end no job, and two thousand nodes make one.

`run` as processes on this host, as in test_run.py: no engine, no torch, real sockets.
"""

# ruff: noqa: F811 - fixtures of another module are imported, and asked for by name

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from entrypoints.pytorch.launch.handshake import VERSION
from entrypoints.pytorch.launch.launch_error import Code
from tests.e2e.peers import Peer, connections, hello, relay, simulate
from tests.e2e.test_run import Start, address, job, script, start  # noqa: F401 - fixtures

pytestmark = pytest.mark.entrypoints

Script = Callable[[str], str]
NESTED = b"[" * 200_000
ATTACKS = {
    "nested JSON": NESTED,
    "nested JSON in a line": b'{"kind":' + b"[" * 8000 + b"]" * 8000 + b"}\n",
    "a hello without a node": b'{"kind": "hello", "nnodes": 2, "nproc": 1, "commit": ""}\n',
    "a node that is no number": b'{"kind": "hello", "node": {}, "nnodes": 2, "nproc": 1, "commit": ""}\n',
    "another NNODES": b'{"kind": "hello", "node": 1, "nnodes": 7, "nproc": 1, "commit": ""}\n',
    "a kind that is no text": b'{"kind": ["hello"]}\n',
    "no object": b"null\n3\n",
    "HTTP": b"GET / HTTP/1.1\r\nHost: node0\r\n\r\n",
    "random bytes": bytes(range(256)) * 300,
    "a large number": b'{"kind": "hello", "node": ' + b"9" * 5000 + b"}\n",
}


def _node_zero(start: Start, script: Script, address: str, port: int, text: str = "", **more: object) -> Any:
    return start(script(text), **{**job(address, port, 2)[0], "RENDEZVOUS_TIMEOUT": 60, **more})


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_stranger_ends_no_job(start: Start, script: Script, address: str, port: int, attack: str) -> None:
    master = _node_zero(start, script, address, port)
    stranger = Peer(address, port)
    stranger.socket.sendall(ATTACKS[attack])
    worker = start(script(""), **job(address, port, 2)[1])
    for code, _, err in (master.end(), worker.end()):
        assert code == 0, err
        assert "Traceback" not in err


@pytest.mark.parametrize("idle", [(300, 100), (1500, 4096)], ids=["few files", "more than select takes"])
def test_idle_connections_end_no_job(
    start: Start, script: Script, address: str, port: int, idle: tuple[int, int]
) -> None:
    count, files = idle
    master = _node_zero(start, script, address, port, by=("prlimit", f"--nofile={files}"))
    with connections(address, port, count):
        worker = start(script(""), **job(address, port, 2)[1])
        for code, _, err in (master.end(60), worker.end(60)):
            assert code == 0, err


def test_a_node_cannot_turn_a_failure_into_success(start: Start, script: Script, address: str, port: int) -> None:
    master = _node_zero(start, script, address, port, "time.sleep(60)")
    worker = Peer(address, port)
    assert worker.introduce()["kind"] == "welcome"
    worker.hear("start")
    failure = {"node": 1, "code": 0, "rank": 1, "local_rank": 0, "why": "", "words": [], "told": False}
    worker.say(kind="failed", failure=failure)
    code, _, err = master.end()
    assert code == Code.NODE_LOST
    assert "does not speak as `run` does" in err


def test_what_another_node_says_cannot_steer_the_terminal(
    start: Start, script: Script, address: str, port: int
) -> None:
    master = _node_zero(start, script, address, port, "time.sleep(60)")
    worker = Peer(address, port)
    worker.introduce()
    worker.hear("start")
    words = ["\x1b[2J\x1b]0;owned\x07", "a\nrun: the job is done", "\u202egnp.exe", "caf\xe9"]
    failure = {"node": 1, "code": 7, "rank": 1, "local_rank": 0, "why": "\x1b[31m", "words": words, "told": False}
    worker.say(kind="failed", failure=failure)
    worker.say(kind="ended")
    code, _, err = master.end()
    assert code == 7
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", err)
    assert err.splitlines()[-4:] == [
        r"    \x1b[2J\x1b]0;owned\x07",
        r"    a\nrun: the job is done",
        r"    \u202egnp.exe",
        "    caf\xe9",
    ]


def test_a_node_speaks_of_itself_alone(start: Start, script: Script, address: str, port: int) -> None:
    master = _node_zero(start, script, address, port, "time.sleep(1)")
    worker = Peer(address, port)
    worker.introduce()
    worker.hear("start")
    failure = {"node": 0, "code": 9, "rank": 0, "local_rank": 0, "why": "", "words": [], "told": False}
    worker.say(kind="failed", failure=failure)
    worker.say(kind="verdict", cause=failure, notes=[])
    worker.say(kind="ended")
    assert worker.hear("verdict")["cause"] is None
    assert master.end()[0] == 0


# --- the token


def test_without_the_token_nothing_is_trusted(start: Start, script: Script, address: str, port: int) -> None:
    text = "assert 'JOB_TOKEN' not in os.environ"
    master = _node_zero(start, script, address, port, text, JOB_TOKEN="correct horse")
    for token, more in (("", {}), ("wrong", {}), ("wrong", {"nnodes": 7}), ("", {"node": 0})):
        assert Peer(address, port).introduce(token, **more) == {}
    worker = start(script(text), **job(address, port, 2, JOB_TOKEN="correct horse")[1])
    ends = [master.end(), worker.end()]
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert "says that it is node 1, but has another JOB_TOKEN, or none: it is not trusted" in ends[0][2]


def test_what_was_heard_once_proves_nothing_again(start: Start, script: Script, address: str, port: int) -> None:
    master = _node_zero(start, script, address, port, JOB_TOKEN="secret")
    first, second = Peer(address, port), Peer(address, port)
    overheard = hello(first.hear("greeting"), "secret")
    second.hear("greeting")
    second.say(**overheard)
    assert second.hear("welcome", "refused") == {}
    first.say(**overheard)
    assert first.hear("welcome", "refused")["kind"] == "welcome"
    master.process.terminate()


def test_another_token_is_said_on_both_sides(start: Start, script: Script, address: str, port: int) -> None:
    one, other = job(address, port, 2)
    master = start(script(""), **{**one, "JOB_TOKEN": "a", "RENDEZVOUS_TIMEOUT": 20})
    worker = start(script(""), **{**other, "JOB_TOKEN": "b", "RENDEZVOUS_TIMEOUT": 300})
    code, _, err = worker.end(60)
    assert (code, "JOB_TOKEN" in err.splitlines()[-1]) == (Code.DISAGREE, True)
    code, _, err = master.end(60)
    assert code == Code.NODES_MISSING
    assert "node 1 came with another JOB_TOKEN" in err.splitlines()[-1]


def test_a_false_node_zero_is_not_trusted(start: Start, script: Script, address: str, port: int) -> None:
    """A false node 0 knows the protocol, not the token: it can neither start the job nor choose its last message."""
    with socket.create_server(("", port)) as listener:
        worker = start(script("print('started')"), **job(address, port, 2, JOB_TOKEN="secret")[1])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while connection := listener.accept()[0]:
                    connection.sendall(_line(kind="greeting", version=VERSION, instance="0" * 32, nonce="0" * 32))
                    connection.recv(65536)
                    connection.sendall(_line(kind="welcome", proof="0" * 64) + _line(kind="start"))

        threading.Thread(target=serve, daemon=True).start()
        code, out, err = worker.end(60)
    assert (code, out) == (Code.DISAGREE, ""), err


FAILED = {"node": 0, "code": 7, "rank": 0, "local_rank": 0, "why": "", "words": [], "told": False}
INJECTED: dict[str, dict[str, object]] = {
    "failed": {"kind": "failed", "failure": FAILED},
    "stop": {"kind": "stop", "signal": 15},
    "verdict": {"kind": "verdict", "cause": None, "notes": []},
}


@pytest.mark.parametrize("injected", INJECTED)
def test_a_relay_cannot_speak_for_a_node(start: Start, script: Script, address: str, port: int, injected: str) -> None:
    """It lets the handshake pass, so it sits between two nodes that trust each other."""
    one, other = job(address, port, 2, JOB_TOKEN="secret", RENDEZVOUS_TIMEOUT=60)
    text = script("time.sleep(60)")
    with relay(address, port, _line(**INJECTED[injected])) as between:
        nodes = [start(text, **one), start(text, **{**other, "MASTER_PORT": between})]
        ends = [node.end() for node in nodes]
    for code, _, err in ends:
        assert code == Code.NODE_LOST, err
        assert "Traceback" not in err
    assert "not proven by the JOB_TOKEN" in ends[1][2]


def test_a_relay_that_only_passes_on_ends_no_job(start: Start, script: Script, address: str, port: int) -> None:
    one, other = job(address, port, 2, JOB_TOKEN="secret", RENDEZVOUS_TIMEOUT=60)
    text = script("time.sleep(5)")
    with relay(address, port, b"") as between:
        nodes = [start(text, **one), start(text, **{**other, "MASTER_PORT": between})]
        ends = [node.end() for node in nodes]
    assert [code for code, _, _ in ends] == [0, 0], ends


def test_a_run_of_another_version_is_named(start: Start, script: Script, address: str, port: int) -> None:
    with socket.create_server(("", port)) as listener:
        worker = start(script(""), **job(address, port, 2)[1])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while connection := listener.accept()[0]:
                    connection.sendall(_line(kind="greeting", version=2, instance="0" * 32, nonce="0" * 32))

        threading.Thread(target=serve, daemon=True).start()
        code, _, err = worker.end(60)
    assert code == Code.DISAGREE
    assert f"version 2 of the protocol between nodes, and this one {VERSION}: start all nodes" in err.splitlines()[-1]


def _line(**message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


# --- a large job


def test_two_thousand_nodes_check_in_and_end(start: Start, script: Script, address: str, port: int) -> None:
    count = 2000
    variables = {**job(address, port, count)[0], "RENDEZVOUS_TIMEOUT": 120}
    text = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    command = start(script(text), by=("prlimit", "--nofile=1024:8192"), **variables)
    Peer(address, port).socket.close()
    began = time.monotonic()
    started = simulate(address, port, count, 120)
    seconds = max(started) - began
    code, out, err = command.end(60)
    assert (code, out) == (0, "1024\n"), err
    print(f"\n{count} nodes: the last started {seconds:.1f} s after the first connected")
    assert len(err.splitlines()) < 100
    assert seconds < 90


def test_too_few_files_for_the_nodes_are_told_to_all(start: Start, script: Script, address: str, port: int) -> None:
    many = job(address, port, 1000)
    text = script("print('started')")
    master = start(text, by=("prlimit", "--nofile=500"), **{**many[0], "RENDEZVOUS_TIMEOUT": 8})
    worker = start(script("print('started')"), **many[1])
    for code, out, err in (worker.end(60), master.end(60)):
        assert (code, out) == (Code.OPEN_FILES, "")
        assert "--ulimit nofile=" in err.splitlines()[-1]
