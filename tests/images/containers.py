"""Containers of the image under test: one that stays for the session, and short ones that run a command to its end."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import testinfra
from docker.models.containers import Container
from docker.models.volumes import Volume
from testinfra.host import Host

from torchbake.engine.architecture import no_emulator
from torchbake.engine.client import Engine
from torchbake.engine.runner import ContainerEnd, Runner

_QUIET = {"TORCHBAKE_BANNER": "0"}
_EMULATED = 20  # times slower than the machine's own architecture; usually 5 to 10
STAYING = ("sleep", "infinity")  # the command of the container that stays


class ContainerError(Exception):
    """A container that the checks need did not start, did not stay, or did not end."""


class NotRunnableError(Exception):
    """The engine's machine cannot run the image, so no check that needs a container can run."""


class Containers:
    """Makes containers of images, and removes all of them in the end. Thread-safe.

    If the image is for another architecture, the command ``look`` shows if the engine's machine can run it.
    """

    def __init__(self, engine: Engine, ref: str, look: Sequence[str] = ()) -> None:
        self._engine, self._runner, self._ref = engine, Runner(engine), ref
        self._staying: Container | None = None
        self._lock = threading.Lock()
        self.platform = self._runner.foreign_platform(ref)
        self.refusal = ""
        if self.platform and look and self.run(*look).is_foreign:
            self.refusal = no_emulator(self.platform)

    @property
    def patience(self) -> int:
        """The factor of all time limits."""
        return _EMULATED if self.platform else 1

    def is_native(self, ref: str) -> bool:
        """Return whether the engine's machine runs an image without an emulator."""
        return not self._runner.foreign_platform(ref)

    @property
    def podman(self) -> bool:
        return self._engine.podman

    def create(self, *command: str, ref: str | None = None, **options: Any) -> Container:
        """A container that is not started yet, without a network unless asked for."""
        return self._runner.container(
            ref or self._ref, command, **{"network_mode": "none", "environment": _QUIET, **options}
        )

    def volume(self) -> Volume:
        """A new, empty volume."""
        return self._runner.volume()

    def run(self, *command: str, timeout: float = 60, **options: Any) -> ContainerEnd:
        """Run a command through the image's own entrypoint. Raises ContainerError when it does not end in time."""
        with self.started(*command, **options) as container:
            return self.end(container, timeout)

    @contextlib.contextmanager
    def created(self, *command: str, **options: Any) -> Iterator[Container]:
        """A container that is never started, for its files and its volumes."""
        container = self.create(*command, **options)
        try:
            yield container
        finally:
            self._runner.remove(container)

    @contextlib.contextmanager
    def started(self, *command: str, **options: Any) -> Iterator[Container]:
        """Start a container; if its command does not exist, `end` reports that. Raises NotRunnableError."""
        if self.refusal:
            raise NotRunnableError(self.refusal)
        container = self.create(*command, **options)
        try:
            self._runner.start(container)
            yield container
        finally:
            self._runner.remove(container)

    def end(self, container: Container, timeout: float = 60) -> ContainerEnd:
        """Wait for a container's end."""
        timeout *= self.patience
        if not self._runner.wait(container, timeout):
            raise ContainerError(f"the command did not end within {timeout:g} s")
        return self._runner.wait_for_end(container, "the container")

    def host(self, user: str = "") -> Host:
        """Return the long-running container as a testinfra host, as the image's own user or another."""
        if self.refusal:
            raise NotRunnableError(self.refusal)
        name = self._stay().id
        return testinfra.get_host(f"docker://{user}@{name}" if user else f"docker://{name}")

    def remove_all(self) -> None:
        self._runner.remove_all()

    def _stay(self) -> Container:
        with self._lock:
            if self._staying is None:
                container = self.create(*STAYING)
                self._runner.start(container)
                time.sleep(0.1)
                container.reload()
                if container.status != "running":
                    raise ContainerError(f"no container of it stays: {self.end(container).last_words}")
                self._staying = container
            return self._staying
