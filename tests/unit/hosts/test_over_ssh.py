"""How a command on a host ended is told in ssh's words only where ssh itself failed; what a host says is looked at."""

import json
import threading

import pytest

from torchbake.core.problem import Problem
from torchbake.core.processes import ProcessResult
from torchbake.engine.runner import ContainerEnd
from torchbake.hosts import over_ssh
from torchbake.hosts.over_ssh import Facts, look
from torchbake.hosts.ssh import SshHost

HOST = SshHost(name="a", address="a")
FACTS = {"python": "3.11.2", "torch": "__version__ = '2.13.0+cpu'\n", "address": "10.0.0.1", "port": 4711, "gpus": []}


def end_of(code: int, stderr: str = "", stdout: str = "", *, late: bool = False) -> ContainerEnd:
    return over_ssh._end_of(HOST, ProcessResult(code=code, seconds=1.5, at=0, stdout=stdout, stderr=stderr, late=late))


def test_a_connection_that_fails_is_told_by_who_logs_in() -> None:
    end = end_of(255, "Warning: x\nPermission denied (publickey).\n")
    assert end.how == "did not start: ssh cannot log in as pytorch: Permission denied (publickey)."


def test_a_host_without_a_sandbox_differs_from_a_missing_command() -> None:
    output = f"sh: 1: exec: {HOST.python}: not found"
    assert "there is no /home/pytorch/pytorch/sandbox/bin/python that pytorch may run" in end_of(127, output).how
    assert end_of(127, "sh: other: not found").how == "ended with 127"


def test_a_signal_and_a_late_end_are_told_as_they_are() -> None:
    assert end_of(137).how == "was ended by SIGKILL"
    assert end_of(255, "x", late=True).how == "did not end within 2 s, and was killed"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (end_of(0, stdout="nonsense"), "its Python ended with 0: it printed nothing"),
        (end_of(1, stderr="Traceback\nMemoryError"), "its Python ended with 1: MemoryError"),
        (end_of(0, stdout=json.dumps({**FACTS, "torch": ""})), "its sandbox has no torch"),
        (end_of(255, "no route"), "ssh cannot log in as pytorch: no route"),
    ],
)
def test_what_cannot_be_looked_at_is_a_problem(
    answer: ContainerEnd, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_ssh, "call", lambda *_: answer)
    value = look(HOST, threading.Event())
    assert isinstance(value, Problem)
    assert value.reason == reason


def test_the_facts_are_the_last_line_whatever_a_login_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_ssh, "call", lambda *_: end_of(0, stdout=f"Welcome!\n{json.dumps(FACTS)}\n"))
    value = look(HOST, threading.Event())
    assert isinstance(value, Facts)
    assert (value.address, value.port) == ("10.0.0.1", 4711)


def test_the_master_starts_after_the_others_or_before_them() -> None:
    starts = {order: [over_ssh._delay(number, order) for number in range(3)] for order in ("workers-first", None)}
    assert starts == {"workers-first": [1.0, 0, 0], None: [0, 0, 0]}
    assert [over_ssh._delay(number, "master-first") for number in range(3)] == [0, 1.0, 1.0]
