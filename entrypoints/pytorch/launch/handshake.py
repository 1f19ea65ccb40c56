"""The handshake by which two nodes authenticate each other before they trust a message.

Node 0 sends a nonce on each new connection. The other node answers with its view of the job, a second nonce, and a
proof over both nonces and that view. The proof is an HMAC keyed with JOB_TOKEN, so the token itself is never sent.
Node 0 sends a proof too. Then both seal each line (seal.py) by a key of this connection alone. Without a JOB_TOKEN the
key is empty and lines have no seal: then the proof only keeps out programs that do not use this protocol.
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
    """The other side is not node 0 of this job. ``foreign``: waiting does not help.

    ``remedy`` is the next step if the other side is a `run` that this node cannot work with.
    """

    def __init__(self, reason: str, *, foreign: bool, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.foreign = foreign
        self.remedy = remedy


@dataclass(frozen=True)
class Greeting:
    """The first message of node 0."""

    instance: str
    nonce: str

    def as_message(self) -> dict[str, Any]:
        return {"version": VERSION, "instance": self.instance, "nonce": self.nonce}


def new_nonce() -> str:
    return os.urandom(16).hex()


def hello_of(contract: Contract, commit: str, trouble: LaunchError | None = None) -> Message:
    """Return a node's view of the job; ``trouble`` is the reason why it cannot take part."""
    return {
        "node": contract.node_rank,
        "nnodes": contract.nnodes,
        "nproc": contract.nproc_per_node,
        "commit": commit,
        "trouble": {"code": int(trouble.code), "sentence": trouble.sentence[:LONGEST_SENTENCE]} if trouble else None,
    }


def proof(token: str, who: str, nonces: tuple[str, str], hello: Mapping[str, Any]) -> str:
    """Return the proof that ``who`` ("node 0" or "other") knows the token; it is valid on this connection alone."""
    claim = json.dumps([who, nonces, dict(hello)], sort_keys=True)
    return hmac.new(os.fsencode(token), claim.encode(), "sha256").hexdigest()


def seals_of(token: str, nonces: tuple[str, str], *, node_zero: bool) -> Seals | None:
    """Return the seals of this connection; None without a token."""
    if not token:
        return None
    key = hmac.digest(os.fsencode(token), json.dumps(["seals", nonces]).encode(), "sha256")
    return Seals(key, node_zero=node_zero)


def answer(token: str, greeting: Greeting, hello: Message) -> str | None:
    """Return node 0's proof if the proof in ``hello`` is right; else None."""
    view = {name: value for name, value in hello.items() if name not in ("kind", "nonce", "proof")}
    nonces = greeting.nonce, hello["nonce"]
    if not hmac.compare_digest(proof(token, "other", nonces, view), hello["proof"]):
        return None
    return proof(token, "node 0", nonces, view)


def introduce(wire: Wire, token: str, hello: Message, deadline: float, *, but_not: str = "") -> bool:
    """Authenticate node 0, and introduce this node to it.

    Returns False if the instance ``but_not`` answers. Raises NotNodeZeroError.
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
        if wire.end_reason == UNSEALED:
            raise _another_token()
        if wire.end_reason:
            raise NotNodeZeroError(wire.end_reason, foreign="speak" in wire.end_reason)
    raise NotNodeZeroError("it said nothing", foreign=True)
