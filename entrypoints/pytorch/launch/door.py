"""The listening socket of node 0. A connection is a stranger with limits until its proof has been checked."""

import contextlib
import errno
import selectors
import socket
import time
from dataclasses import dataclass, field

from .handshake import Greeting, answer, new_nonce, seals_of
from .log import say
from .messages import Message
from .wire import HELLO_BYTES, Wire

STRANGERS = 256  # Further strangers replace the oldest.
_HELLO_SECONDS = 10.0  # for a stranger to prove itself, or a refused node to hang up
_BATCH = 256  # connections accepted before others are read
_MOST_REMARKS = 5  # lines in the log
_FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


@dataclass(eq=False)
class Guest:
    """A connection, and the greeting that was sent on it."""

    wire: Wire
    greeting: Greeting
    since: float = field(default_factory=time.monotonic)
    leaving: bool = False  # its last message has been sent


class Door:
    """A listening socket and its connections."""

    def __init__(self, listener: socket.socket, instance: str, token: str, nodes: int) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._instance = instance
        self._token = token
        self._most = nodes + STRANGERS
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._strangers: dict[Guest, None] = {}  # the oldest first
        self._remarks = 0
        self.unproven: set[int] = set()  # the node numbers that strangers have claimed

    def poll(self, seconds: float) -> list[tuple[Guest, Message]]:
        """Return the guests that have proven themselves since the last call, each with its hello message."""
        proven = []
        for key, _ in self._selector.select(seconds):
            guest: Guest | None = key.data
            if not guest:
                self._accept()
            elif guest.wire.open and (hello := self._hear(guest)):  # a new stranger may just have replaced it
                proven.append((guest, hello))
        return proven

    def expire(self) -> None:
        """Hang up on strangers whose time is over."""
        now = time.monotonic()
        for guest in [
            guest for guest in self._strangers if now - guest.since > _HELLO_SECONDS or guest.wire.end_reason
        ]:
            self.drop(guest)
        for guest in self._strangers:
            guest.wire.flush()

    def drop(self, guest: Guest) -> None:
        self._strangers.pop(guest, None)
        self._forget(guest)
        guest.wire.close()

    def dismiss(self, guest: Guest) -> None:
        """Hang up when the guest has read the last message."""
        guest.leaving = True
        guest.since = time.monotonic()
        self._strangers[guest] = None
        guest.wire.finish()

    def close(self) -> list[Wire]:
        """Stop listening. Return the connections whose other side has not yet read its refusal."""
        self._selector.close()
        for guest in self._strangers:
            if not guest.leaving:
                guest.wire.close()
        return [guest.wire for guest in self._strangers if guest.leaving]

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                connection = self._listener.accept()[0]
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _FULL and not self._drop_oldest():
                    time.sleep(0.1)  # the next waits in the kernel until there is room
                    return
                continue
            if len(self._strangers) >= self._most:
                self._drop_oldest()
            wire, greeting = Wire(connection, most_bytes=HELLO_BYTES), Greeting(self._instance, nonce=new_nonce())
            guest = Guest(wire, greeting)
            wire.send("greeting", **greeting.as_message())
            self._strangers[guest] = None
            self._selector.register(wire, selectors.EVENT_READ, guest)

    def _drop_oldest(self) -> bool:
        for guest in self._strangers:
            self.drop(guest)
            return True
        return False

    def _forget(self, guest: Guest) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(guest.wire)

    def _hear(self, guest: Guest) -> Message | None:
        messages = guest.wire.receive()
        if guest not in self._strangers:
            if guest.wire.end_reason:
                self._forget(guest)
            return None  # a proven node only beats until the job starts
        hello = None
        if messages and not guest.leaving:
            hello = self._prove(guest, messages[0])
        if guest.wire.end_reason:
            if "speak" in guest.wire.end_reason:
                self._remark(f"a connection from {guest.wire.address} does not speak as `run` does: it is ignored")
            self.drop(guest)
            return None
        return hello

    def _prove(self, guest: Guest, hello: Message) -> Message | None:
        if hello["kind"] != "hello":
            guest.wire.end_reason = "it does not speak as `run` does"
            return None
        proof = answer(self._token, guest.greeting, hello)
        if proof is None:
            self._remark(
                f"a connection from {guest.wire.address} says that it is node {hello['node']}, "
                "but has another JOB_TOKEN, or none: it is not trusted"
            )
            if len(self.unproven) < STRANGERS:
                self.unproven.add(hello["node"])
            guest.wire.send("unproven")
            self.dismiss(guest)
            return None
        guest.wire.seal(seals_of(self._token, (guest.greeting.nonce, hello["nonce"]), node_zero=True))
        guest.wire.send("welcome", proof=proof)
        guest.wire.trust()
        self._strangers.pop(guest)
        return hello

    def _remark(self, what: str) -> None:
        self._remarks += 1
        if self._remarks <= _MOST_REMARKS:
            say(f"run: {what}" + (" (others like it are not named)" if self._remarks == _MOST_REMARKS else ""))
