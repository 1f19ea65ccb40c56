"""Create containers, networks and volumes, each with a label of the owner, so that a later run can remove them."""

import contextlib
import signal
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any

import requests
from docker.errors import APIError, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.models.volumes import Volume
from docker.types import LogConfig

from torchbake.core.plain_text import last_line
from torchbake.core.processes import ProcessResult
from torchbake.core.signals import signal_name, to_its_end
from torchbake.engine.architecture import NO_FORMAT, PLAYED_PROCESSOR, foreign_platform
from torchbake.engine.client import Engine, answering
from torchbake.engine.owner import owner_label
from torchbake.errors import EngineError
from torchbake.oci.labels import LABEL

RUN = f"{LABEL}.run"
OWNER = f"{LABEL}.owner"
_TOGETHER = f"{LABEL}.cluster"
_LOOK = 0.1  # seconds between two checks of a removal
_REMOVE_SECONDS = 10  # for a removal by another process
_MISSING_CODES = (404, 409)  # removed, or being removed

# Not every default driver of an engine keeps logs that can be read.
_LOGS = LogConfig(type="json-file", config={"max-size": "64m"})


@dataclass(frozen=True, kw_only=True)
class ContainerEnd:
    """The end of a container, after ``seconds``, at the time ``at`` since the epoch, or 0 if it never ran.

    ``problem`` is the engine's reason why it did not start. ``out_of_memory`` and ``timed_out`` are reasons of a kill.
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

    @classmethod
    def of(cls, result: ProcessResult, name: str, *, problem: str = "") -> "ContainerEnd":
        """Return the end of a process without a container."""
        return cls(
            name=name, code=result.code, seconds=result.seconds, at=result.at, stdout=result.stdout,
            stderr=result.stderr,
            timed_out=result.late, problem=problem,
        )  # fmt: skip

    @property
    def good(self) -> bool:
        return self.code == 0 and not self.timed_out and not self.problem

    @property
    def is_foreign(self) -> bool:
        """True if the kernel does not run the program, which is of another architecture."""
        return not self.good and NO_FORMAT in f"{self.problem} {self.stderr}".lower()

    @property
    def how(self) -> str:
        """The end in words: ``ended with 3``, ``was ended by SIGKILL``, …"""
        if self.problem:
            return f"did not start: {self.problem}"
        if self.timed_out:
            return f"did not end within {self.seconds:.0f} s, and was killed"
        if self.out_of_memory:
            return "was killed for lack of memory"
        return f"was ended by {signal_name(self.code - 128)}" if self.code > 128 else f"ended with {self.code}"

    @property
    def last_words(self) -> str:
        """The last line of stderr, or the reason why there is none."""
        return last_line(self.stderr.strip() or self.problem, 200)


class Runner:
    """Creates containers, networks and volumes of one run, and removes all of them. Thread-safe.

    ``run`` is a label for everything of one run. With ``keep`` they have no owner, so that the next run does not remove
    them as leftovers. Every method may raise EngineError.
    """

    def __init__(self, engine: Engine, *, run: str | None = None, keep: bool = False) -> None:
        self._engine = engine
        self.id = uuid.uuid4().hex[:12]
        owner = "" if keep else owner_label()
        self.labels = {RUN: run or self.id, _TOGETHER: self.id, **({OWNER: owner} if owner else {})}
        self._problems: dict[str, str] = {}
        self.foreign_platform = cache(partial(foreign_platform, engine))  # the engine is asked once for each image

    def container(
        self, image: str, command: Sequence[str] = (), *, labels: Mapping[str, str] | None = None, **options: Any
    ) -> Container:
        """Create a container, with options in the SDK's form. It is not started."""
        if platform := self.foreign_platform(image):  # else the engine warns, or looks for another image
            qemu = {"QEMU_CPU": PLAYED_PROCESSOR[platform]} if platform in PLAYED_PROCESSOR else {}
            options = {"platform": platform, **options, "environment": qemu | dict(options.get("environment") or {})}
        try:
            with answering(), to_its_end():
                return self._engine.client.containers.create(
                    image, list(command) or None, labels={**(labels or {}), **self.labels}, log_config=_LOGS, **options
                )
        except ImageNotFound:
            raise EngineError(f"{image} is not in the engine, or was removed.", hint="See: docker images") from None

    def network(self, *, internal: bool) -> str:
        """Create a network, and return its name. An ``internal`` network has no route to others."""
        name = f"torchbake-{self.id}"
        with answering(), to_its_end():
            self._engine.client.networks.create(name, driver="bridge", internal=internal, labels=self.labels)
        return name

    def endpoint(self, network: str, name: str) -> dict[str, Any]:
        """Return the options of a container that has this name on a network."""
        endpoint = self._engine.client.api.create_endpoint_config(aliases=[name])
        return {"network": network, "networking_config": {network: endpoint}}

    def volume(self) -> Volume:
        """Create an empty volume."""
        with answering(), to_its_end():
            return self._engine.client.volumes.create(labels=self.labels)

    def start(self, container: Container) -> None:
        """Start a container. If the engine refuses, for a missing command or GPU, `ended` returns the problem."""
        with answering():
            try:
                container.start()
            except APIError as error:
                self._problems[str(container.id)] = str(error.explanation or error).strip()

    def running(self) -> set[str]:
        """Return the IDs of the running containers."""
        with answering():
            entries = self._engine.client.api.containers(all=True, filters={"label": f"{_TOGETHER}={self.id}"})
        return {entry["Id"] for entry in entries if entry["State"] not in ("created", "exited", "dead")}

    def wait(self, container: Container, timeout: float) -> bool:
        """Return whether a container ends in time. A container that was never started has ended."""
        with answering():
            try:
                container.wait(timeout=timeout)
            except requests.RequestException:
                return False
        return True

    def kill(self, containers: set[str], number: int = signal.SIGKILL) -> None:
        for name in containers:
            with answering(), contextlib.suppress(APIError):  # the container has ended by itself
                self._engine.client.api.kill(name, int(number))

    def follow(self, container: Container) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield a container's output from now on, as pairs of stdout and stderr, until it ends."""
        with answering():
            return self._engine.client.api.attach(str(container.id), stream=True, demux=True)

    def wait_for_end(self, container: Container, name: str, *, late: bool = False) -> ContainerEnd:
        """Return the end of a container, which was killed after the time limit if ``late``."""
        with answering():
            try:
                container.reload()
                stdout, stderr = (container.logs(stdout=out, stderr=not out) for out in (True, False))
            except NotFound:
                return ContainerEnd(name=name, code=125, problem="somebody removed the container")
        state = container.attrs["State"]
        start, at = _moment(state["StartedAt"]), _moment(state["FinishedAt"])
        problem = self._problems.get(str(container.id), "")
        return ContainerEnd(
            name=name,
            code=state["ExitCode"] or (125 if problem else 0),
            seconds=round(max(0.0, at - start), 3),
            at=at,
            stdout=stdout.decode(errors="replace"),
            stderr=stderr.decode(errors="replace"),
            out_of_memory=bool(state.get("OOMKilled")),
            timed_out=late,
            problem=problem,
        )

    def remove(self, container: Container) -> None:
        """Remove a container with its anonymous volumes, even if it runs."""
        with answering(), _ignore_missing():
            container.remove(force=True, v=True)

    def remove_all(self) -> None:
        remove(self._engine, _TOGETHER, self.id)


def read_history(engine: Engine, image: str) -> list[dict[str, Any]]:
    """Read the history of an image, newest step first. Raises EngineError.

    Docker 26 deletes the snapshots of an image if another image with the same layers is removed, and then answers 404
    until it has unpacked the image again, for a new container.
    """
    with answering():
        engine_image = engine.client.images.get(image)
        with contextlib.suppress(NotFound):
            return list(engine_image.history())
    runner = Runner(engine)
    runner.remove(runner.container(image, ["/"]))
    with answering():
        return list(engine_image.history())


def run_words(labels: Mapping[str, str]) -> list[str]:
    """Return the first words of a `docker run` whose container is removed at its end.

    ``labels`` are a Runner's, with the owner, or empty for a command that is only shown.
    """
    return ["docker", "run", "--rm", *(f"--label={name}={value}" for name, value in labels.items())]


def remove(engine: Engine, label: str, value: str) -> int:
    """Remove the containers with their volumes, networks and volumes of a label, and return their number."""
    client, of_cluster = engine.client, {"label": f"{label}={value}"}
    with answering():
        containers = client.api.containers(all=True, filters=of_cluster)
        for entry in containers:
            with _ignore_missing():
                client.api.remove_container(entry["Id"], force=True, v=True)
        # A container that another process is removing still uses its network.
        deadline = time.monotonic() + _REMOVE_SECONDS
        while containers and client.api.containers(all=True, filters=of_cluster) and time.monotonic() < deadline:
            time.sleep(_LOOK)
        networks = client.api.networks(filters=of_cluster)
        for entry in networks:
            with _ignore_missing():
                client.api.remove_network(entry["Id"])
        volumes = client.api.volumes(filters=of_cluster)["Volumes"] or []
        for entry in volumes:
            with _ignore_missing():
                client.api.remove_volume(entry["Name"])
    return len(containers) + len(networks) + len(volumes)


def owners(engine: Engine, label: str = OWNER) -> set[str]:
    """Return the owners of all containers, networks and volumes, by the values of their label."""
    filters = {"label": label}
    with answering():
        api = engine.client.api
        entries = [*api.containers(all=True, filters=filters), *api.networks(filters=filters)]
        entries += api.volumes(filters=filters)["Volumes"] or []
    return {(entry.get("Labels") or {}).get(label, "") for entry in entries}


@contextlib.contextmanager
def _ignore_missing() -> Iterator[None]:
    try:
        yield
    except APIError as error:
        if error.status_code not in _MISSING_CODES:
            raise


def _moment(text: str) -> float:
    """Return an engine's time stamp in seconds since the epoch; 0 for the year 1, which means never."""
    moment = datetime.fromisoformat(text)
    return 0.0 if moment.year == 1 else moment.timestamp()
