"""How two nodes make sure of each other before they trust a word.

Node 0 greets whoever connects with a number used once. The other answers with what it knows of the job, a number of its
own, and a proof over all of that: an HMAC keyed with JOB_TOKEN, so that the token itself is never sent. Node 0
proves itself in the same way. From then on both seal each line (seal.py), by a key that only this conversation has.
Without a JOB_TOKEN the key is empty and lines are bare: the proof then keeps out what does not speak this protocol,
and no more.
"""

import hmac
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .contract import Contract
from .launch_error import LaunchError
from .messages import LONGEST_SENTENCE, Message
from .seal import Seals
from .wire import LOST_SECONDS, UNSEALED, Wire

VERSION = 3


class NotNodeZeroError(Exception):
    """Another program, or not yet node 0, answered. ``foreign``: waiting will not change that.

    ``remedy`` says how to change it if a `run` answered which this node cannot work with.
    """

    def __init__(self, reason: str, *, foreign: bool, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.foreign = foreign
        self.remedy = remedy


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """What node 0 says first."""

    instance: str
    nonce: str

    def as_message(self) -> dict[str, Any]:
        return {"version": VERSION, "instance": self.instance, "nonce": self.nonce}


def new_nonce() -> str:
    return os.urandom(16).hex()


def hello_of(contract: Contract, commit: str, trouble: LaunchError | None = None) -> Message:
    """What a node says of itself; ``trouble`` is why it cannot take part."""
    told = {"code": int(trouble.code), "sentence": trouble.sentence[:LONGEST_SENTENCE]} if trouble else None
    return {
        "node": contract.node_rank,
        "nnodes": contract.nnodes,
        "nproc": contract.nproc_per_node,
        "commit": commit,
        "trouble": told,
    }


def proof(token: str, who: str, nonces: tuple[str, str], hello: Mapping[str, Any]) -> str:
    """Shows that ``who`` (node 0 or the other) knows the token, in this conversation alone."""
    said = json.dumps([who, nonces, {name: hello[name] for name in sorted(hello)}], sort_keys=True)
    return hmac.new(os.fsencode(token), said.encode(), "sha256").hexdigest()


def seals_of(token: str, nonces: tuple[str, str], *, node_zero: bool) -> Seals | None:
    """The seals of this conversation; None without a token."""
    if not token:
        return None
    key = hmac.digest(os.fsencode(token), json.dumps(["seals", nonces]).encode(), "sha256")
    return Seals(key, node_zero=node_zero)


def answer(token: str, greeting: Greeting, hello: Message) -> str | None:
    """Node 0's proof in return for a hello that is proven; None when it is not."""
    said = {name: value for name, value in hello.items() if name not in ("kind", "nonce", "proof")}
    nonces = greeting.nonce, hello["nonce"]
    if not hmac.compare_digest(proof(token, "other", nonces, said), hello["proof"]):
        return None
    return proof(token, "node 0", nonces, said)


def introduce(wire: Wire, token: str, hello: Message, deadline: float, *, but_not: str = "") -> bool:
    """Make sure of node 0, and introduce this node to it.

    Returns False when the answer comes from the instance ``but_not``. Raises NotNodeZeroError.
    """
    greeting = _next(wire, deadline)
    if greeting["kind"] != "greeting":
        raise NotNodeZeroError("it does not greet as `run` does", foreign=True)
    if greeting["version"] != VERSION:
        raise NotNodeZeroError(
            f"its `run` speaks version {greeting['version']} of the protocol between nodes, and this one {VERSION}",
            foreign=True,
            remedy="start all nodes of the job from the same image",
        )
    if greeting["instance"] == but_not:
        return False
    nonces = greeting["nonce"], new_nonce()
    wire.send("hello", **hello, nonce=nonces[1], proof=proof(token, "other", nonces, hello))
    wire.seal(seals_of(token, nonces, node_zero=False))
    welcome = _next(wire, deadline)
    expected = proof(token, "node 0", nonces, hello)
    if welcome["kind"] != "welcome" or not hmac.compare_digest(expected, welcome["proof"]):
        raise _another_token()
    wire.trust()
    return True


def _another_token() -> NotNodeZeroError:
    reason = "it has another JOB_TOKEN, or one where this node has none, or none"
    return NotNodeZeroError(reason, foreign=True, remedy="give all nodes of the job the same")


def _next(wire: Wire, deadline: float) -> Message:
    until = min(deadline, time.monotonic() + LOST_SECONDS)
    while time.monotonic() < until:
        if message := wire.next(until - time.monotonic()):
            return message
        if wire.gone == UNSEALED:
            raise _another_token()
        if wire.gone:
            raise NotNodeZeroError(wire.gone, foreign="speak" in wire.gone)
    raise NotNodeZeroError("it said nothing", foreign=True)
