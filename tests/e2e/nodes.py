"""Containers as the nodes of one job, for tests that configure each node separately."""

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import requests
from docker.models.containers import Container

from tests.e2e.owned import OURS

JOBS = Path(__file__).parent / "jobs"
SLOW = 240  # seconds; on a machine with much else to do, loading torch alone may take one minute


@dataclass
class Job:
    """Containers on a separate network; ``settings`` are the variables of all nodes."""

    engine: docker.DockerClient
    image: str
    network: Any
    nodes: int
    settings: Mapping[str, object]
    containers: list[Container] = field(default_factory=list)

    def start(
        self, node: int, *command: str, program: str = "run", names: tuple[str, ...] = (), ip: str | None = None,
        shm: str = "256m", devices: tuple[str, ...] = (), tmpfs: Mapping[str, str] | None = None,
        hosts: Mapping[str, str] | None = None, shared: Path | None = None, security: tuple[str, ...] = (),
        **variables: object,
    ) -> Container:  # fmt: skip
        """Start ``PROGRAM COMMAND`` as a node; a variable whose value is None is left out.

        ``shared`` is a folder of this machine, at the same path in each.
        """
        values = {"TORCHBAKE_BANNER": 0, "NODE_RANK": node, **self.settings, **variables}
        mounts = {JOBS: "/job", **({shared: str(shared)} if shared else {})}
        endpoint = self.engine.api.create_endpoint_config(aliases=[f"node{node}", *names], ipv4_address=ip)
        container = self.engine.containers.create(
            self.image, [program, *command], hostname=f"node{node}", shm_size=shm, devices=list(devices),
            environment={name: str(value) for name, value in values.items() if value is not None},
            tmpfs=dict(tmpfs or {}), extra_hosts=dict(hosts or {}), labels=OURS,
            security_opt=list(security),
            volumes={str(path): {"bind": at, "mode": "ro"} for path, at in mounts.items()},
            network=self.network.name, networking_config={self.network.name: endpoint},
        )  # fmt: skip
        self.containers.append(container)
        container.start()
        return container

    def start_all(self, *command: str, **variables: object) -> list[Container]:
        return [self.start(node, *command, **variables) for node in range(self.nodes)]  # type: ignore[arg-type]

    def ends(self, seconds: float = SLOW) -> list[int]:
        """Return every container's exit code; -1 for a container that did not end in time."""
        deadline = time.monotonic() + seconds
        codes = []
        for container in self.containers:
            try:
                codes.append(container.wait(timeout=max(1, deadline - time.monotonic()))["StatusCode"])
            except requests.RequestException:
                codes.append(-1)
        return codes


@contextmanager
def new_job(
    engine: docker.DockerClient, image: str, nodes: int, settings: Mapping[str, object], *, subnet: str | None = None
) -> Iterator[Job]:
    """Make a job without containers; at the end, remove all added containers and the network."""
    pool = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(subnet=subnet)]) if subnet else None
    network = engine.networks.create(f"torchbake-test-{uuid.uuid4().hex[:8]}", ipam=pool, labels=OURS)
    job = Job(engine, image, network, nodes, settings)
    try:
        yield job
    finally:
        for container in job.containers:
            with contextlib.suppress(docker.errors.APIError):
                container.remove(force=True, v=True)
        network.remove()
