"""The nodes other than node 0: each finds node 0 by name and port, introduces itself, and waits for the start."""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from .contract import Contract
from .handshake import NotNodeZeroError, hello_of, introduce
from .launch_error import Code, LaunchError
from .messages import Message
from .wire import BEAT_SECONDS, LOST_SECONDS, Wire

_PAUSE = 0.5  # seconds between two tries
_ANSWER_SECONDS = 2.0  # The kernel sends a second SYN after one second.
_FOREIGN_SECONDS = 5.0  # Another program on the port may give way to node 0.
_TELL_SECONDS = 30.0  # for a node that cannot start to find node 0
Say = Callable[[str], None]
_Value = TypeVar("_Value")


def check_in(contract: Contract, commit: str, say: Say) -> Wire:
    """Connect to node 0 and wait until all nodes have connected. Raises LaunchError."""
    deadline = time.monotonic() + contract.rendezvous_timeout
    while True:
        wire = _find(contract, hello_of(contract, commit), deadline, say)
        say("waiting for the other nodes")
        if _wait_for_start(contract, wire, deadline, say):
            return wire
        wire.close()
        time.sleep(_PAUSE)


def tell_trouble(contract: Contract, trouble: LaunchError, say: Say) -> None:
    """Report to node 0, and so to all nodes, why this node cannot take part."""
    deadline = time.monotonic() + min(_TELL_SECONDS, contract.rendezvous_timeout)
    with contextlib.suppress(LaunchError):  # this node has its own reason to end
        wire = _find(contract, hello_of(contract, "", trouble), deadline, say)
        wire.next(BEAT_SECONDS)
        wire.close()


def _find(contract: Contract, hello: Message, deadline: float, say: Say) -> Wire:
    """Connect to node 0 and authenticate both sides.

    Raises LaunchError at the deadline, or after 5 s of answers from another program on the port.
    """
    cost: dict[str, float] = {}
    foreign, since = 0, 0.0
    while True:
        wire = Wire(connect(contract, deadline, say, cost))
        since = since if foreign else time.monotonic()
        try:
            introduce(wire, contract.job_token, hello, deadline)
        except NotNodeZeroError as error:
            if error.foreign:
                cost[wire.peer] = math.inf
            wire.close()
            now = time.monotonic()
            foreign = foreign + 1 if error.foreign else 0
            if now >= deadline or (foreign > 1 and now - since >= _FOREIGN_SECONDS):
                raise _not_node_zero(contract, error) from None
            time.sleep(_PAUSE)
        else:
            return wire


def _not_node_zero(contract: Contract, error: NotNodeZeroError) -> LaunchError:
    where, reason = f"{contract.master_addr}:{contract.master_port}", error.reason
    if error.remedy:
        return LaunchError(Code.DISAGREE, f"{where} answers, but {reason}: {error.remedy}.")
    return LaunchError(
        Code.NO_PORT,
        f"{where} answers, but not as node 0 of this job ({reason}): does node 0 start it by `run` too? "
        "Perhaps another program holds its port.",
    )


def _wait_for_start(contract: Contract, wire: Wire, deadline: float, say: Say) -> bool:
    """Return True when the job starts, False if the connection breaks. Raises LaunchError."""
    missing = ""
    # Node 0 may have started at the same time: leave it the time to report which nodes are missing.
    while time.monotonic() < deadline + 2 * _PAUSE:
        wire.keep_alive()
        message = wire.next(_PAUSE)
        if message is None:
            if wire.end_reason:
                break
        elif message["kind"] == "start":
            return True
        elif message["kind"] == "refused":
            raise LaunchError(Code(message["code"]), message["sentence"])
        elif message["kind"] == "waiting":
            missing = message["missing"]
            say(f"node 0 waits for {missing}")
    if time.monotonic() < deadline:
        return False
    raise LaunchError(
        Code.NODES_MISSING,
        f"{missing or 'another node'} of {contract.nnodes} did not come to node 0 within RENDEZVOUS_TIMEOUT="
        f"{contract.rendezvous_timeout:g} s: look at their logs, or raise it.",
    )


def resolve(contract: Contract, deadline: float, say: Say) -> list[str]:
    """Resolve the master's name to its addresses. Raises LaunchError (NO_NAME) at the deadline."""
    while True:
        try:
            return _addresses(contract)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
        if time.monotonic() >= deadline:
            raise LaunchError(
                Code.NO_NAME,
                f"the master's name {contract.master_addr} did not resolve within RENDEZVOUS_TIMEOUT="
                f"{contract.rendezvous_timeout:g} s ({reason}): correct MASTER_ADDR, or look whether node 0 runs.",
            )
        say(f"waiting for the name {contract.master_addr}")
        time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))


def _addresses(contract: Contract) -> list[str]:
    matches = socket.getaddrinfo(contract.master_addr, contract.master_port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in matches))


def connect(contract: Contract, deadline: float, say: Say, cost: dict[str, float]) -> socket.socket:
    """Connect to the master's port. Raises LaunchError (NO_NAME, NO_PORT) at the deadline.

    ``cost`` is shared by all calls: the seconds for which each address was tried in vain. Addresses that do not answer
    are tried last, since a name may still list a node 0 that is gone (restarted pods on Kubernetes).
    """
    return _reach(contract, deadline, say, lambda addresses: _knock(contract, addresses, deadline, cost))


def _reach(contract: Contract, deadline: float, say: Say, find: Callable[[list[str]], _Value]) -> _Value:
    """Return the result of ``find`` for the addresses of the master's name; call it again while it raises OSError."""
    addresses = resolve(contract, deadline, say)
    while True:
        try:
            return find(addresses)
        except OSError as error:
            reason = error.strerror or str(error)
        if time.monotonic() >= deadline:
            raise LaunchError(
                Code.NO_PORT,
                f"{contract.master_addr} resolved to {', '.join(addresses)}, but port {contract.master_port} did not "
                f"answer within RENDEZVOUS_TIMEOUT={contract.rendezvous_timeout:g} s ({reason}): "
                "is node 0 running, and is the port open between the nodes?",
            )
        say(f"waiting for port {contract.master_port} of {contract.master_addr}")
        time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))
        # The name may now resolve to another container.
        with contextlib.suppress(OSError, UnicodeError):
            addresses = _addresses(contract)


def _knock(contract: Contract, addresses: list[str], deadline: float, cost: dict[str, float]) -> socket.socket:
    """Connect to the first address that answers. Raises the last OSError if no address answers."""
    last = OSError("no address")
    for address in sorted(addresses, key=lambda each: cost.get(each, 0.0)):
        start = time.monotonic()
        try:
            wait = min(_ANSWER_SECONDS, max(0.1, deadline - start))
            return socket.create_connection((address, contract.master_port), timeout=wait)
        except OSError as error:
            last = error
            cost[address] = max(time.monotonic() - start, cost.get(address, 0.0))
    raise last


def find_rendezvous(contract: Contract, say: Say) -> str:
    """Find the rendezvous address of an elastic job: an address of the master's name on which the port answers.

    On the node that hosts the rendezvous, the port answers only after its torchrun has started. That node is recognised
    by its own address. Raises LaunchError (NO_NAME, NO_PORT) after RENDEZVOUS_TIMEOUT.
    """
    if contract.is_master and "is_host" in contract.rdzv_conf:
        return contract.master_addr  # the user names the host, perhaps by an address of another machine
    deadline = time.monotonic() + contract.rendezvous_timeout
    cost: dict[str, float] = {}

    def find(addresses: list[str]) -> str:
        # Under launchers that do not number the nodes, every node has rank 0.
        own = [address for address in addresses if contract.is_master and _is_here(address)]
        if own:
            return own[0]
        with _knock(contract, addresses, deadline, cost) as connection:
            return str(connection.getpeername()[0])

    return _reach(contract, deadline, say, find)


def rendezvous_gone(contract: Contract) -> str:
    """Return the reason why an elastic job has lost its rendezvous on another machine; empty if it still answers."""
    where = f"{contract.master_addr}:{contract.master_port}"
    try:
        address = (_addresses(contract) or [""])[0]
        if _is_here(address):
            return ""
        socket.create_connection((address, contract.master_port), timeout=5).close()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return f"node 0, which holds the rendezvous, is gone: {where} does not answer ({reason}); look at its log"
    return ""


def _is_here(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def other_node_zero(contract: Contract, commit: str, instance: str) -> Iterator[list[LaunchError]]:
    """Check, while node 0 waits, that MASTER_ADDR leads to this node and not to another one that claims to be node 0.

    Yields a list that receives the error, if there is one. A thread does the check, as a name's lookup can take long.
    """
    errors: list[LaunchError] = []
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            try:
                if _is_another(contract, commit, instance):
                    errors.append(
                        LaunchError(
                            Code.DISAGREE,
                            f"two nodes say that they are node 0: this one, and {contract.master_addr}:"
                            f"{contract.master_port}, where the others go; give each its own NODE_RANK.",
                        )
                    )
                return
            except (OSError, UnicodeError, NotNodeZeroError):
                enough.wait(BEAT_SECONDS)

    with contextlib.suppress(RuntimeError):  # without threads the job ends later, when the other nodes can be told
        threading.Thread(target=look, daemon=True).start()
    try:
        yield errors
    finally:
        enough.set()


def _is_another(contract: Contract, commit: str, instance: str) -> bool:
    deadline = time.monotonic() + LOST_SECONDS
    wire = Wire(socket.create_connection((contract.master_addr, contract.master_port), timeout=5))
    try:
        return introduce(wire, contract.job_token, hello_of(contract, commit), deadline, but_not=instance)
    finally:
        wire.finish()
        wire.close()
