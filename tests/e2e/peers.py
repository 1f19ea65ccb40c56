"""Clients of node 0's port: lightweight simulated nodes, and attackers.

Implements the protocol of entrypoints/pytorch/launch/handshake.py independently, so that tests notice a change.
"""

import asyncio
import contextlib
import hmac
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Message = dict[str, Any]


def hello(greeting: Message, token: str = "", **values: object) -> Message:
    """Return a node's answer to the greeting of node 0."""
    lines = {"node": 1, "nnodes": 2, "nproc": 1, "commit": "", "trouble": None, **values}
    nonces = [greeting["nonce"], os.urandom(16).hex()]
    text = json.dumps(["other", nonces, dict(sorted(lines.items()))], sort_keys=True)
    proof = hmac.new(token.encode(), text.encode(), "sha256").hexdigest()
    return {"kind": "hello", **lines, "nonce": nonces[1], "proof": proof}


class Peer:
    """A connection to node 0 that a test controls message by message."""

    def __init__(self, address: str, port: int) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                self.socket = socket.create_connection((address, port), timeout=20)
                break
            except OSError:
                assert time.monotonic() < deadline, "node 0 does not listen"
                time.sleep(0.1)
        self._lines = self.socket.makefile("rb")

    def say(self, **message: object) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, *kinds: str) -> Message:
        """Return the next message of one of these kinds; an empty message if node 0 has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while line := self._lines.readline():
                message: Message = json.loads(line[line.index(b"{") :])  # with a token, a seal comes first
                if message["kind"] in kinds:
                    return message
        return {}

    def introduce(self, token: str = "", **values: object) -> Message:
        """Check in, and return node 0's answer."""
        self.say(**hello(self.hear("greeting"), token, **values))
        return self.hear("welcome", "refused")


@contextmanager
def relay(address: str, port: int, injected: bytes) -> Iterator[int]:
    """Yield the port of a relay to node 0, which adds a line after node 0's `start` message."""

    def pass_on(source: socket.socket, target: socket.socket, added: bytes) -> None:
        with contextlib.suppress(OSError):
            for line in source.makefile("rb"):
                target.sendall(line)
                if added and b'"start"' in line:
                    target.sendall(added)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError, AssertionError):  # the test or node 0 has ended
            while connection := listener.accept()[0]:
                behind = Peer(address, port).socket
                for source, target, added in ((connection, behind, b""), (behind, connection, injected)):
                    threading.Thread(target=pass_on, args=(source, target, added), daemon=True).start()

    with socket.create_server((address, 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])


@contextmanager
def connections(address: str, port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open ``count`` connections that send nothing."""
    with many_files(count + 200), contextlib.ExitStack() as stack:
        Peer(address, port).socket.close()  # until it listens
        yield [stack.enter_context(socket.create_connection((address, port), timeout=20)) for _ in range(count)]


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """Allow ``count`` open files in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, before[1]) if count > before[0] else before[0], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def simulate(address: str, port: int, nnodes: int, seconds: float) -> list[float]:
    """Simulate all nodes but node 0: each checks in, starts and ends. Return the start time of each."""

    async def node(number: int) -> float:
        reader, writer = await asyncio.open_connection(address, port)
        greeting = json.loads(await reader.readline())
        writer.write(json.dumps(hello(greeting, node=number, nnodes=nnodes)).encode() + b"\n")
        assert json.loads(await reader.readline())["kind"] == "welcome"
        start = 0.0
        while line := await reader.readline():
            kind = json.loads(line)["kind"]
            if kind == "beat":
                writer.write(line)
            elif kind == "start":
                start = time.monotonic()
                writer.write(b'{"kind": "ended"}\n')
            elif kind == "verdict":
                writer.close()
                return start
        raise AssertionError(f"node {number} was left alone")

    async def all_nodes() -> list[float]:
        async with asyncio.timeout(seconds):
            return await asyncio.gather(*(node(number) for number in range(1, nnodes)))

    with many_files(nnodes + 200):
        return asyncio.run(all_nodes())
