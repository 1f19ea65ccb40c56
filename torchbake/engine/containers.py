"""Several containers on a network of their own: started in order, all waited for, all judged, and gone afterwards."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from docker.errors import APIError, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig

from torchbake.core.signals import signal_name, signals_heard_by, to_its_end
from torchbake.engine.client import Engine, answering
from torchbake.engine.owner import owner_label
from torchbake.errors import EngineError
from torchbake.oci.labels import LABEL
from torchbake.ui import console

RUN = f"{LABEL}.run"
OWNER = f"{LABEL}.owner"
_CLUSTER = f"{LABEL}.cluster"
_LOOK = 0.1  # seconds between two looks at what runs
_KILL_SECONDS = 30  # that an engine gets to end containers that it was told to kill
_REMOVE_SECONDS = 10  # and to end a removal that somebody else began
_GONE = (404, 409)  # not there any more, or being removed already
_LOGS = LogConfig(type="json-file", config={"max-size": "64m"})  # whatever the engine's default is, it can be read back

Order = Literal["workers-first", "master-first"]
ORDERS: tuple[Order, ...] = ("workers-first", "master-first")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One container: what it runs, through the image's own entrypoint. The first of several is the master."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Box:
    """What all containers of a cluster have in common. ``mounts``: folders of the engine's host, read-only.

    Without ``network`` a container has its loopback alone. A network leads to the other nodes and nowhere else,
    unless it is ``open``.
    """

    user: str | None = None
    shm_size: str | None = None
    read_only: bool = False
    tmpfs: tuple[str, ...] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    cap_add: tuple[str, ...] = ()
    cap_drop: tuple[str, ...] = ()
    memory: str | None = None
    gpu: DeviceRequest | None = None
    network: bool = True
    open: bool = False

    def options(self) -> dict[str, Any]:
        """As the SDK takes them."""
        chosen = {
            "user": self.user,
            "shm_size": self.shm_size,
            "read_only": self.read_only,
            "tmpfs": dict.fromkeys(self.tmpfs, ""),
            "volumes": {folder: {"bind": place, "mode": "ro"} for folder, place in self.mounts.items()},
            "cap_add": list(self.cap_add),
            "cap_drop": list(self.cap_drop),
            "mem_limit": self.memory,
            "memswap_limit": self.memory,
            "device_requests": [self.gpu] if self.gpu else None,
        }
        return {name: value for name, value in chosen.items() if value}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a node ended. ``seconds`` is its own time, ``at`` when it ended (seconds since the epoch; 0: never ran).

    ``problem`` is why it did not start, in the engine's words; ``out_of_memory`` and ``timed_out`` say who killed it.
    """

    name: str
    code: int
    seconds: float = 0
    at: float = 0
    stdout: str = ""
    stderr: str = ""
    out_of_memory: bool = False
    timed_out: bool = False
    problem: str = ""

    @property
    def good(self) -> bool:
        return self.code == 0 and not self.timed_out and not self.problem

    @property
    def how(self) -> str:
        """``ended with 3``, ``was ended by SIGKILL``, …"""
        if self.problem:
            return f"did not start: {self.problem}"
        if self.timed_out:
            return f"did not end within {self.seconds:.0f} s, and was killed"
        if self.out_of_memory:
            return "was killed for lack of memory"
        return f"was ended by {signal_name(self.code - 128)}" if self.code > 128 else f"ended with {self.code}"


class Cluster:
    """Containers of one image. A context manager: in the end they, their network and their volumes are gone.

    ``run`` is the label by which everything of one run can be found. Once ``stopping`` is set, what is under way
    raises KeyboardInterrupt. With ``keep`` all stays, for a person to look at. Everything may raise EngineError.
    """

    def __init__(
        self,
        engine: Engine,
        image: str,
        box: Box | None = None,
        *,
        run: str | None = None,
        stopping: threading.Event | None = None,
        keep: bool = False,
    ) -> None:
        self._engine, self._image, self._box = engine, image, box or Box()
        self._id = uuid.uuid4().hex[:12]
        self._keep = keep
        # What shall stay has no owner: else the next run would take it for a leftover.
        owner = "" if keep else owner_label()
        self._labels = {RUN: run or self._id, _CLUSTER: self._id, **({OWNER: owner} if owner else {})}
        self._stopping = stopping or threading.Event()
        self._containers: list[Container] = []
        self._problems: dict[str, str] = {}
        self._network: str | None = None

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._keep:
            with undisturbed():
                remove(self._engine, _CLUSTER, self._id)

    def run(
        self,
        nodes: Sequence[Node],
        *,
        order: Order = "workers-first",
        delay: float = 1.0,
        timeout: float = 300,
        on_look: Callable[[str], None] = lambda _: None,
    ) -> tuple[Ended, ...]:
        """Start the nodes and wait for every one of them; how each ended, in their order."""
        self.start(nodes, order=order, delay=delay)
        return self.wait(timeout, on_look)

    def start(self, nodes: Sequence[Node], *, order: Order = "workers-first", delay: float = 1.0) -> None:
        """Start node1, node2, … and, ``delay`` seconds after them, node0; or node0 first."""
        if self._box.network and self._network is None:
            self._network = f"torchbake-{self._id}"
            with answering(), to_its_end():
                self._engine.client.networks.create(
                    self._network, driver="bridge", internal=not self._box.open, labels=self._labels
                )
        first = len(self._containers)
        self._containers += [self._create(first + number, node) for number, node in enumerate(nodes)]
        master, workers = self._containers[first : first + 1], self._containers[first + 1 :]
        groups = (workers, master) if order == "workers-first" else (master, workers)
        for number, group in enumerate(groups):
            if number and all(groups):
                self._pause(delay)
            for container in group:
                self._start(container)

    def wait(self, timeout: float, on_look: Callable[[str], None] = lambda _: None) -> tuple[Ended, ...]:
        """Wait for the end of every node, then say how each ended. What still runs after ``timeout`` is killed."""
        deadline = time.monotonic() + timeout
        late: set[str] = set()
        while running := self._running():
            on_look(f"{len(running)} of {len(self._containers)} containers run")
            if time.monotonic() > deadline:
                if late:
                    raise EngineError(f"The engine does not end {len(running)} containers that it was told to kill.")
                late = running
                self._kill(running)
                deadline = time.monotonic() + _KILL_SECONDS
            self._pause(_LOOK)
        return tuple(self._ended(number, container, late) for number, container in enumerate(self._containers))

    def _create(self, number: int, node: Node) -> Container:
        self._pause(0)
        name, client = f"node{number}", self._engine.client
        options: dict[str, Any] = {"network_mode": "none", **self._box.options()}
        if self._network:
            del options["network_mode"]
            endpoint = client.api.create_endpoint_config(aliases=[name])
            options |= {"network": self._network, "networking_config": {self._network: endpoint}}
        try:
            with answering(), to_its_end():
                return client.containers.create(
                    self._image, list(node.command), name=f"torchbake-{self._id}-{name}", hostname=name,
                    environment=dict(node.env), labels=self._labels, log_config=_LOGS, **options,
                )  # fmt: skip
        except ImageNotFound:
            raise EngineError(f"{self._image} is not in the engine, or no more.", hint="See: docker images") from None

    def _start(self, container: Container) -> None:
        """An engine that refuses is a result, not an error: a command that is not there, a GPU that is not there."""
        self._pause(0)
        with answering():
            try:
                container.start()
            except APIError as error:
                self._problems[str(container.id)] = str(error.explanation or error).strip()

    def _running(self) -> set[str]:
        with answering():
            entries = self._engine.client.api.containers(all=True, filters={"label": f"{_CLUSTER}={self._id}"})
        return {entry["Id"] for entry in entries if entry["State"] not in ("created", "exited", "dead")}

    def _kill(self, running: set[str]) -> None:
        for name in running:
            with answering(), contextlib.suppress(APIError):  # it ended by itself just now
                self._engine.client.api.kill(name)

    def _ended(self, number: int, container: Container, late: set[str]) -> Ended:
        name, identity = f"node{number}", str(container.id)
        with answering():
            try:
                container.reload()
                stdout, stderr = (container.logs(stdout=out, stderr=not out) for out in (True, False))
            except NotFound:
                return Ended(name=name, code=125, problem="somebody removed the container")
        state = container.attrs["State"]
        started, at = _moment(state["StartedAt"]), _moment(state["FinishedAt"])
        problem = self._problems.get(identity, "")
        return Ended(
            name=name,
            code=state["ExitCode"] or (125 if problem else 0),
            seconds=round(max(0.0, at - started), 3),
            at=at,
            stdout=stdout.decode(errors="replace"),
            stderr=stderr.decode(errors="replace"),
            out_of_memory=bool(state.get("OOMKilled")),
            timed_out=identity in late,
            problem=problem,
        )

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise KeyboardInterrupt


def remove(engine: Engine, label: str, value: str) -> int:
    """Remove every container and network with this label, and the containers' volumes; how many there were."""
    client, wanted = engine.client, {"label": f"{label}={value}"}
    with answering():
        containers = client.api.containers(all=True, filters=wanted)
        for entry in containers:
            with _already_gone():
                client.api.remove_container(entry["Id"], force=True, v=True)
        # What somebody else is removing still holds its network.
        deadline = time.monotonic() + _REMOVE_SECONDS
        while containers and client.api.containers(all=True, filters=wanted) and time.monotonic() < deadline:
            time.sleep(_LOOK)
        networks = client.api.networks(filters=wanted)
        for entry in networks:
            with _already_gone():
                client.api.remove_network(entry["Id"])
    return len(containers) + len(networks)


@contextlib.contextmanager
def _already_gone() -> Iterator[None]:
    try:
        yield
    except APIError as error:
        if error.status_code not in _GONE:
            raise


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """What cleans up is not interrupted once more; it takes seconds, and leaving it half done helps nobody."""
    with signals_heard_by(lambda _: console.say("still removing what was started …")):
        yield


def _moment(text: str) -> float:
    """Seconds since the epoch of an engine's time stamp; 0 for its year 1."""
    moment = datetime.fromisoformat(text)
    return 0.0 if moment.year == 1 else moment.timestamp()
