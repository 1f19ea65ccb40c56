"""The words between nodes: what is no message ends a connection, and nothing else."""

import hmac
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.pytorch.launch.contract import Contract, contract_of
from entrypoints.pytorch.launch.failure import JobFailure
from entrypoints.pytorch.launch.handshake import Greeting, answer, hello_of, new_nonce, proof, seals_of
from entrypoints.pytorch.launch.launch_error import Code, LaunchError
from entrypoints.pytorch.launch.log import join_numbers, printable
from entrypoints.pytorch.launch.messages import parse
from entrypoints.pytorch.launch.state import new_state
from entrypoints.pytorch.launch.wire import HELLO_BYTES, UNSEALED, Wire

FAILURE = {**JobFailure(node=1, rank=1, local_rank=0, code=7).as_message(), "words": ["boom"]}
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(sorted(FAILURE)), inner),
)


def read_output(kind: str, **values: Any) -> bytes:
    return json.dumps({"kind": kind, **values}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b'{"kind":' * 100_000,
        b'{"kind": ["beat"]}',
        b'{"kind": "other"}',
        b'{"kind": "beat", "more": 1}',
        b'{"kind": "hello"}',
        b"\xff\xfe",
        b'{"kind": "done", "rank": ' + b"9" * 10_000 + b"}",
        b'{"kind": "done", "rank": NaN}',
    ],
)
def test_what_is_no_message_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse(line)


def test_a_failure_is_a_failure_in_all_its_parts() -> None:
    assert parse(read_output("failed", failure=FAILURE))["failure"] == FAILURE
    changes: dict[str, tuple[object, ...]] = {
        "code": (0, -1, 256, "7", True, 7.0),
        "node": ({}, -1),
        "rank": ("1",),
        "words": ("boom", [1], ["x"] * 41, ["x" * 2001]),
        "why": (None,),
        "told": (1,),
        "more": (1,),
    }
    for key, value in ((key, value) for key, values in changes.items() for value in values):
        with pytest.raises(ValueError, match="does not speak"):
            parse(read_output("failed", failure={**FAILURE, key: value}))


@pytest.mark.parametrize("code", [0, 1, 79, 143, "86"])
def test_a_refusal_has_a_code_of_run(code: object) -> None:
    with pytest.raises(ValueError, match="does not speak"):
        parse(read_output("refused", code=code, sentence="no"))


@given(ODD, st.sampled_from(["failed", "hello", "verdict", "refused", "stop", "rank-ended"]))
def test_odd_values_are_refused_or_right(value: object, kind: str) -> None:
    for line in (json.dumps(value), json.dumps({"kind": kind, "failure": value, "node": value, "cause": value})):
        try:
            message = parse(line.encode())
        except ValueError:
            continue
        assert isinstance(message["kind"], str)


@given(st.binary(max_size=300))
def test_any_bytes_end_a_connection_at_most(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours, most_bytes=HELLO_BYTES)
    theirs.sendall(data + b"\n")
    assert wire.receive() == [] or not wire.end_reason
    theirs.close()
    wire.close()


def test_a_stranger_says_little() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours, most_bytes=HELLO_BYTES)
    theirs.sendall(b"x" * (HELLO_BYTES + 1))
    assert wire.receive() == []
    assert "does not speak" in wire.end_reason
    theirs.close()
    wire.close()


def test_one_that_does_not_read_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    for _ in range(100):
        wire.send("waiting", missing="x" * 100_000)
    assert "does not read" in wire.end_reason
    theirs.close()
    wire.close()


def test_what_waits_is_sent_when_the_other_reads() -> None:
    ours, theirs = socket.socketpair()
    wire, other = Wire(ours), Wire(theirs)
    for _ in range(30):
        wire.send("waiting", missing="x" * 1000 * 100)
        if wire.unsent:
            break
    wire.send("failed", failure=FAILURE)
    messages = []
    while wire.unsent:
        messages += other.receive()
        if other.end_reason:
            break
        wire.flush()
    assert not wire.end_reason
    wire.close()
    other.close()


# --- proofs


@given(st.text(), st.text())
def test_a_proof_holds_for_one_token_and_one_conversation(token: str, other: str) -> None:
    contract = Contract(mode="distributed", nnodes=3, node_rank=2)
    greeting = Greeting(instance=new_nonce(), nonce=new_nonce())
    hello = hello_of(contract, "c0ffee")
    reply = {"kind": "hello", **hello, "nonce": new_nonce()}
    reply["proof"] = proof(token, "other", (greeting.nonce, reply["nonce"]), hello)
    assert answer(token, greeting, reply) == proof(token, "node 0", (greeting.nonce, reply["nonce"]), hello)
    assert (answer(other, greeting, reply) is None) == (token != other)
    assert answer(token, Greeting(instance=greeting.instance, nonce=new_nonce()), reply) is None
    assert answer(token, greeting, {**reply, "node": 1}) is None
    assert answer(token, greeting, {**reply, "nonce": new_nonce()}) is None


# --- seals, and a relay that hears and may alter all that two nodes say

Relay = Callable[[list[bytes], list[bytes]], list[bytes]]
FORGED = read_output("failed", failure=FAILURE)
RELAYS: dict[str, Relay] = {
    "adds a bare line": lambda lines, back: [*lines[:2], FORGED, *lines[2:]],
    "adds a seal of its own": lambda lines, back: [*lines[:2], b"0" * 64 + b" " + FORGED, *lines[2:]],
    "takes a seal for another line": lambda lines, back: [lines[0], lines[1][:65] + FORGED],
    "alters a digit": lambda lines, back: [lines[0], lines[1].replace(b"1", b"2")],
    "repeats a line": lambda lines, back: [lines[0], lines[0], *lines[1:]],
    "swaps two lines": lambda lines, back: [lines[1], lines[0], lines[2]],
    "drops a line": lambda lines, back: [lines[0], lines[2]],
    "sends lines back": lambda lines, back: [back[0], *lines],
    "takes seals off": lambda lines, back: [line[65:] for line in lines],
}


def sealed_pair(token: str) -> tuple[Wire, Wire, socket.socket, socket.socket]:
    """Node 0's wire, the other's, and the ends of both that the relay holds."""
    nonces = new_nonce(), new_nonce()
    (zero, one), (other, two) = socket.socketpair(), socket.socketpair()
    wires = Wire(zero), Wire(other)
    for wire, node_zero in zip(wires, (True, False), strict=True):
        wire.seal(seals_of(token, nonces, node_zero=node_zero))
    return *wires, one, two


@pytest.mark.parametrize("relay", RELAYS)
@pytest.mark.parametrize("from_zero", [True, False])
def test_what_a_relay_changes_is_not_heard(relay: str, from_zero: bool) -> None:
    zero, other, at_zero, at_other = sealed_pair("secret")
    ways = ((zero, other, at_zero, at_other), (other, zero, at_other, at_zero))
    sender, hearer, at_sender, at_hearer = ways[0 if from_zero else 1]
    for number in (11, 12, 13):
        sender.send("done", rank=number)
        hearer.send("done", rank=number)
    lines, back = at_sender.recv(65536).splitlines(), at_hearer.recv(65536).splitlines()
    at_hearer.sendall(b"".join(line + b"\n" for line in RELAYS[relay](lines, back)))
    messages = [message.get("rank") for message in hearer.receive()]
    assert messages in ([], [11], [11, 12])  # what the sender said first, and nothing else
    assert hearer.end_reason == UNSEALED
    assert hearer.receive() == []
    for each in (zero, other, at_zero, at_other):
        each.close()


@pytest.mark.parametrize("token", ["", "secret"])
def test_what_a_relay_passes_on_is_heard(token: str) -> None:
    zero, other, at_zero, at_other = sealed_pair(token)
    for sender, hearer, source, target in ((zero, other, at_zero, at_other), (other, zero, at_other, at_zero)):
        for number in range(300):
            sender.send("done", rank=number)
            target.sendall(source.recv(65536))
            assert hearer.receive() == [{"kind": "done", "rank": number}]
    for each in (zero, other, at_zero, at_other):
        each.close()


def test_a_seal_is_over_direction_number_and_line() -> None:
    nonces = "a" * 32, "b" * 32
    key = hmac.digest(b"secret", json.dumps(["seals", [*nonces]]).encode(), "sha256")
    for node_zero, direction in ((True, b"\0"), (False, b"\1")):
        seals = seals_of("secret", nonces, node_zero=node_zero)
        assert seals is not None
        for number in range(3):
            whole = direction + bytes([0] * 7 + [number]) + b"line"
            assert seals.put_on(b"line") == hmac.digest(key, whole, "sha256").hex().encode() + b" line"
    assert seals_of("", nonces, node_zero=True) is None


def test_bytes_that_are_no_line_are_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    value = wire.last_receipt
    monkeypatch.setattr("time.monotonic", lambda: value + 9)
    theirs.sendall(b" ")
    wire.receive()
    assert wire.last_receipt == value
    theirs.sendall(read_output("beat") + b"\n")
    wire.receive()
    assert wire.last_receipt == value + 9
    theirs.close()
    wire.close()


def test_the_token_is_in_no_message_and_in_no_repr() -> None:
    contract = contract_of({"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "m", "JOB_TOKEN": "geheim"})
    assert contract.job_token == "geheim"
    assert "geheim" not in repr(contract)
    assert "geheim" not in json.dumps(hello_of(contract, "", LaunchError(Code.NO_JOB, "none")))


def test_the_reason_of_a_failed_node_fits_into_a_message() -> None:
    contract = Contract(mode="distributed", nnodes=2, node_rank=1)
    hello = hello_of(contract, "f" * 64, LaunchError(Code.NO_JOB, "\U0001f600" * 5000))
    line = read_output("hello", **hello, nonce=new_nonce(), proof="0" * 64)
    assert len(line) < HELLO_BYTES
    assert parse(line)["trouble"]["code"] == Code.NO_JOB


# --- what is printed and written


@pytest.mark.parametrize(
    ("text", "display"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\r", r"a\nb\r"),
        ("\u202ecod.exe", r"\u202ecod.exe"),
        ("\x9b31m", r"\x9b31m"),
        ("a\tb – ä", "a\tb – ä"),
    ],
)
def test_control_characters_are_shown_as_text(text: str, display: str) -> None:
    assert printable(text) == display


def test_many_nodes_are_named_by_the_first_and_their_number() -> None:
    assert join_numbers("node", [3]) == "node 3"
    assert join_numbers("node", [1, 2]) == "nodes 1, 2"
    assert join_numbers("node", range(1, 2000)) == "nodes 1, 2, 3, 4, 5, 6, 7, 8 and 1991 more"


def test_a_full_folder_keeps_the_last_state_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = new_state(tmp_path)
    state.say("waiting", "waiting for node 1 of many, many nodes")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    state.say("running")
    assert json.loads((state.folder / "state.json").read_text())["phase"] == "running"
    (state.folder / "state.json").unlink()
    state.say("ending", "a rank failed")


def test_a_temporary_folder_that_is_full_at_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="TMPDIR") as refused:
        new_state(tmp_path / "none")
    assert refused.value.code == Code.NO_SPACE


# --- torchrun's own settings


@pytest.mark.parametrize(
    "pet",
    [
        {"PET_MAX_RESTARTS": "-1"},
        {"PET_RDZV_ID": "a b"},
        {"PET_RDZV_CONF": "timeout"},
        {"PET_RDZV_CONF": "a=1,,b=2"},
        {"PET_RDZV_CONF": "a=\x1b"},
    ],
)
def test_odd_settings_of_torchrun_are_refused_by_name(pet: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match=next(iter(pet))) as refused:
        contract_of({"ELASTIC": "1:2", "MASTER_ADDR": "m", **pet})
    assert refused.value.code == Code.BAD_VALUE
