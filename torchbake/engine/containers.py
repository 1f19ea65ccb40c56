"""Run several containers on a private network, wait for all of them, and remove them."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from docker.models.containers import Container
from docker.types import DeviceRequest

from torchbake.core.signals import signals_heard_by
from torchbake.engine.client import Engine
from torchbake.engine.runner import ContainerEnd, Runner
from torchbake.errors import EngineError
from torchbake.ui import console

_LOOK = 0.1  # seconds between two checks of the running containers
_KILL_SECONDS = 30  # for an engine to kill containers

Order = Literal["workers-first", "master-first"]
ORDERS: tuple[Order, ...] = ("workers-first", "master-first")


@dataclass(frozen=True, kw_only=True)
class ContainerNode:
    """One container: its command, for the image's entrypoint, and its variables. The first node is the master."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ContainerSettings:
    """The options of all containers of a cluster. ``mounts`` are folders of the engine's host, read-only.

    Without ``network`` a container has only its loopback. A network has no route beyond the other nodes, unless it is
    ``open``.
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
        """Return the options in the SDK's form."""
        options = {
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
        return {name: value for name, value in options.items() if value}


class Cluster:
    """Containers of one image. A context manager, which removes them with their network and their volumes.

    ``run`` is a label for everything of one run. Once ``stopping`` is set, methods raise KeyboardInterrupt. With
    ``keep`` nothing is removed, for inspection. Every method may raise EngineError.
    """

    def __init__(
        self,
        engine: Engine,
        image: str,
        box: ContainerSettings | None = None,
        *,
        run: str | None = None,
        stopping: threading.Event | None = None,
        keep: bool = False,
    ) -> None:
        self._engine, self._image, self._box, self._keep = engine, image, box or ContainerSettings(), keep
        self._runner = Runner(engine, run=run, keep=keep)
        self._stopping = stopping or threading.Event()
        self._containers: list[Container] = []
        self._network: str | None = None

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._keep:
            with shield():
                self._runner.remove_all()

    def run(
        self,
        nodes: Sequence[ContainerNode],
        *,
        order: Order = "workers-first",
        delay: float = 1.0,
        timeout: float = 300,
        on_look: Callable[[str], None] = lambda _: None,
    ) -> tuple[ContainerEnd, ...]:
        """Start the nodes, wait for all of them, and return their ends in their order."""
        self.start(nodes, order=order, delay=delay)
        return self.wait(timeout, on_look)

    def start(self, nodes: Sequence[ContainerNode], *, order: Order = "workers-first", delay: float = 1.0) -> None:
        """Start the workers, and ``delay`` seconds later node0, the master; or the master first."""
        if self._box.network and self._network is None:
            self._network = self._runner.network(internal=not self._box.open)
        first = len(self._containers)
        self._containers += [self._create(first + number, node) for number, node in enumerate(nodes)]
        master, workers = self._containers[first : first + 1], self._containers[first + 1 :]
        groups = (workers, master) if order == "workers-first" else (master, workers)
        for number, group in enumerate(groups):
            if number and all(groups):
                self._pause(delay)
            for container in group:
                self._pause(0)
                self._runner.start(container)

    def wait(self, timeout: float, on_look: Callable[[str], None] = lambda _: None) -> tuple[ContainerEnd, ...]:
        """Wait for the end of every node, and return the ends. Nodes that run after ``timeout`` seconds are killed."""
        deadline = time.monotonic() + timeout
        late: set[str] = set()
        while running := self._runner.running():
            on_look(f"{len(running)} of {len(self._containers)} containers run")
            if time.monotonic() > deadline:
                if late:
                    raise EngineError(f"The engine does not kill {len(running)} containers.")
                late = running
                self._runner.kill(running)
                deadline = time.monotonic() + _KILL_SECONDS
            self._pause(_LOOK)
        return tuple(
            self._runner.wait_for_end(container, f"node{number}", late=str(container.id) in late)
            for number, container in enumerate(self._containers)
        )

    def _create(self, number: int, node: ContainerNode) -> Container:
        self._pause(0)
        name = f"node{number}"
        options: dict[str, Any] = {"network_mode": "none", **self._box.options()}
        if self._network:
            del options["network_mode"]
            options |= self._runner.endpoint(self._network, name)
        return self._runner.container(
            self._image, node.command, name=f"torchbake-{self._runner.id}-{name}", hostname=name,
            environment=dict(node.env), **options,
        )  # fmt: skip

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise KeyboardInterrupt


@contextlib.contextmanager
def shield() -> Iterator[None]:
    """Ignore signals during a cleanup, which takes seconds, except for a message."""
    with signals_heard_by(lambda _: console.say("still removing containers …")):
        yield
