"""Containers of the image under test: one that stays for the session, and short ones that run a command to its end."""

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import docker
import testinfra
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from requests import RequestException
from testinfra.host import Host

from torchbake.engine.containers import OWNER
from torchbake.engine.owner import owner_label

_LABEL = "org.torchbake.checks"
_QUIET = {"TORCHBAKE_BANNER": "0"}
STAYING = ("sleep", "infinity")  # the command of the container that stays


class ContainerError(Exception):
    """A container that the checks need did not start, did not stay, or did not end."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command in a container ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        return (self.stderr.strip().splitlines() or ["it said nothing"])[-1][:200]


class Containers:
    """Makes containers of images, and removes all of them in the end. Thread-safe."""

    def __init__(self, client: docker.DockerClient, ref: str) -> None:
        self._client, self._ref, self._session = client, ref, uuid.uuid4().hex
        self._staying: Container | None = None
        self._lock = threading.Lock()

    def create(self, *command: str, ref: str | None = None, **options: Any) -> Container:
        """A container that is not started yet, without a network unless asked for."""
        options = {"network_mode": "none", "environment": _QUIET, **options}
        owner = owner_label()  # by it `remove_leftovers` finds what a killed run could not remove
        options["labels"] = {_LABEL: self._session, **({OWNER: owner} if owner else {})}
        return self._client.containers.create(ref or self._ref, list(command) or None, **options)

    def run(self, *command: str, timeout: float = 60, **options: Any) -> Ended:
        """Run a command through the image's own entrypoint. Raises ContainerError when it does not end in time."""
        with self.started(*command, **options) as container:
            return self.end(container, timeout)

    @contextlib.contextmanager
    def started(self, *command: str, **options: Any) -> Iterator[Container]:
        container = self.create(*command, **options)
        try:
            with contextlib.suppress(APIError):  # a command that is not there is an exit code, which wait() gives
                container.start()
            yield container
        finally:
            with contextlib.suppress(NotFound):
                container.remove(force=True, v=True)

    def end(self, container: Container, timeout: float = 60) -> Ended:
        """Wait for a container's end."""
        try:
            code = int(container.wait(timeout=timeout)["StatusCode"])
        except RequestException:
            raise ContainerError(f"the command did not end within {timeout:g} s") from None
        container.reload()
        state = container.attrs["State"]
        stdout, stderr = container.logs(stdout=True, stderr=False), container.logs(stdout=False, stderr=True)
        return Ended(
            code=code,
            stdout=stdout.decode(errors="replace"),
            stderr=stderr.decode(errors="replace") or state.get("Error", ""),
        )

    def host(self, user: str = "") -> Host:
        """The one container that stays, for testinfra, as the image's own user or another."""
        name = self._stay().id
        return testinfra.get_host(f"docker://{user}@{name}" if user else f"docker://{name}")

    def remove_all(self) -> None:
        for container in self._client.containers.list(
            ignore_removed=True, all=True, filters={"label": f"{_LABEL}={self._session}"}
        ):
            with contextlib.suppress(NotFound):
                container.remove(force=True, v=True)

    def _stay(self) -> Container:
        with self._lock:
            if self._staying is None:
                container = self.create(*STAYING)
                container.start()
                time.sleep(0.1)
                container.reload()
                if container.status != "running":
                    raise ContainerError(f"no container of it stays: {self.end(container).last_words}")
                self._staying = container
            return self._staying
